"""Triton helpers: code planes to int8 codes, exact integer sums, scales."""

import triton
import triton.language as tl

from scripts.order_of_sums.records import IQ4_NL


def _immediates() -> list[str]:
    unsigned = [value & 255 for value in IQ4_NL]
    words = [sum(unsigned[4 * i + j] << (8 * j) for j in range(4)) for i in range(4)]
    return [f"0x{word:08X}" for word in words]


_T = _immediates()
_NIBBLES = tl.constexpr(
    "{ .reg .b32 t; shr.u32 t, $2, 4; and.b32 $1, t, 0x0F0F0F0F; and.b32 $0, $2, 0x0F0F0F0F; }"
)
_TABLE = tl.constexpr(
    "{ .reg .b32 t,s,l,h,a,b; and.b32 t,$2,0x77777777; and.b32 s,$2,0x88888888; shr.u32 s,s,1;"
    " or.b32 s,s,0x32103210;"
    f" prmt.b32 l,{_T[0]},{_T[1]},t; prmt.b32 h,{_T[2]},{_T[3]},t; prmt.b32 a,l,h,s;"
    " shr.u32 t,t,16; shr.u32 s,s,16;"
    f" prmt.b32 l,{_T[0]},{_T[1]},t; prmt.b32 h,{_T[2]},{_T[3]},t; prmt.b32 b,l,h,s;"
    " prmt.b32 $0,a,b,0x6420; prmt.b32 $1,a,b,0x7531; }"
)
_FIVE = tl.constexpr(
    "{ .reg .b32 s,h,t,u,v; and.b32 s,$4,31; shr.u32 h,$3,s; and.b32 u,h,0x01010101;"
    " shl.b32 u,u,4; and.b32 t,$2,0x0F0F0F0F; or.b32 u,u,t; shr.u32 t,$2,4;"
    " and.b32 t,t,0x0F0F0F0F; shr.u32 h,h,1; and.b32 v,h,0x01010101; shl.b32 v,v,4;"
    " or.b32 $1,t,v; mov.b32 $0,u; }"
)
_SIX = tl.constexpr(
    "{ .reg .b32 s,h,t,u,v; and.b32 s,$4,31; shr.u32 h,$3,s; and.b32 u,h,0x03030303;"
    " shl.b32 u,u,4; and.b32 t,$2,0x0F0F0F0F; or.b32 u,u,t; shr.u32 t,$2,4;"
    " and.b32 t,t,0x0F0F0F0F; shr.u32 h,h,2; and.b32 v,h,0x03030303; shl.b32 v,v,4;"
    " or.b32 $1,t,v; mov.b32 $0,u; }"
)
_TWO = tl.constexpr(
    "{ .reg .b32 s,h,u; and.b32 s,$3,31; shr.u32 h,$2,s; and.b32 u,h,0x03030303;"
    " shr.u32 h,h,2; and.b32 $1,h,0x03030303; mov.b32 $0,u; }"
)
_DP4A = tl.constexpr("dp4a.s32.s32 $0, $1, $2, $3;")


@triton.jit
def dot4(a, b, c, ASM: tl.constexpr):
    """c + the dot product of four signed bytes."""
    if ASM:
        c = tl.inline_asm_elementwise(
            _DP4A, "=r,r,r,r", [a, b, c], dtype=tl.int32, is_pure=True, pack=1
        )
    else:
        for j in tl.static_range(4):
            c = c + ((a << (24 - 8 * j)) >> 24) * ((b << (24 - 8 * j)) >> 24)
    return c


@triton.jit
def _table(code):
    """The 16-entry table without inline assembly, by selects."""
    v = tl.zeros_like(code)
    for j in tl.static_range(16):
        v = tl.where(code == j, IQ4_NL_C[j], v)
    return v


IQ4_NL_C = tl.constexpr(IQ4_NL)


@triton.jit
def _table_word(codes):
    out = tl.zeros_like(codes)
    for j in tl.static_range(4):
        out = out | ((_table((codes >> (8 * j)) & 15) & 255) << (8 * j))
    return out


@triton.jit
def words(
    base,
    O1,
    first,
    g,
    i: tl.constexpr,
    at,
    BN: tl.constexpr,
    CODES: tl.constexpr,
    ASM: tl.constexpr,
):
    """Codes of group g as packed int32 words: elements 0..15 and 16..31, each [BN, 4]."""
    codes = base.to(tl.pointer_type(tl.int32))
    high = (base + O1).to(tl.pointer_type(tl.int32))
    if CODES == 2:
        p = codes + (first + g) * BN * 8 + at
        lo = tl.load(p)
        hi = tl.load(p + BN * 4)
    elif CODES == 5:
        h = tl.load(codes + (first + g) // 2 * BN * 4 + at) >> (4 * (i % 2))
        lo = h & 0x03030303
        hi = (h >> 2) & 0x03030303
    else:
        q = tl.load(codes + (first + g) * BN * 4 + at)
        lo = q & 0x0F0F0F0F
        hi = (q >> 4) & 0x0F0F0F0F
        if CODES == 1:
            if ASM:
                lo, hi = tl.inline_asm_elementwise(
                    _TABLE, "=r,=r,r", [q], dtype=(tl.int32, tl.int32), is_pure=True, pack=1
                )
            else:
                lo = _table_word(lo)
                hi = _table_word(hi)
        if CODES == 3:
            h = tl.load(high + (first + g) // 4 * BN * 4 + at) >> (2 * i)
            lo = lo | ((h & 0x01010101) << 4)
            hi = hi | (((h >> 1) & 0x01010101) << 4)
        if CODES == 4:
            h = tl.load(high + (first + g) // 2 * BN * 4 + at) >> (4 * (i % 2))
            lo = lo | ((h & 0x03030303) << 4)
            hi = hi | (((h >> 2) & 0x03030303) << 4)
    return lo, hi


@triton.jit
def bytes16(
    base,
    O1,
    first,
    g,
    i: tl.constexpr,
    at,
    BN: tl.constexpr,
    CODES: tl.constexpr,
    ASM: tl.constexpr,
):
    """Codes of group g as int8: elements 0..15 and 16..31, each [BN, 16]."""
    codes = base.to(tl.pointer_type(tl.int8))
    high = (base + O1).to(tl.pointer_type(tl.int8))
    if CODES == 2:
        p = codes + (first + g) * BN * 32 + at
        lo = tl.load(p)
        hi = tl.load(p + BN * 16)
    elif CODES == 5:
        h = tl.load(codes + (first + g) // 2 * BN * 16 + at)
        if ASM:
            s = tl.full(h.shape, 4 * (i % 2), tl.int8)
            lo, hi = tl.inline_asm_elementwise(
                _TWO, "=r,=r,r,r", [h, s], dtype=(tl.int8, tl.int8), is_pure=True, pack=4
            )
        else:
            lo = (h >> (4 * (i % 2))) & 3
            hi = (h >> (4 * (i % 2) + 2)) & 3
    else:
        q = tl.load(codes + (first + g) * BN * 16 + at)
        if CODES == 0:
            if ASM:
                lo, hi = tl.inline_asm_elementwise(
                    _NIBBLES, "=r,=r,r", [q], dtype=(tl.int8, tl.int8), is_pure=True, pack=4
                )
            else:
                lo = q & 15
                hi = (q >> 4) & 15
        if CODES == 1:
            if ASM:
                lo, hi = tl.inline_asm_elementwise(
                    _TABLE, "=r,=r,r", [q], dtype=(tl.int8, tl.int8), is_pure=True, pack=4
                )
            else:
                lo = _table(q & 15)
                hi = _table((q >> 4) & 15)
        if CODES == 3:
            h = tl.load(high + (first + g) // 4 * BN * 16 + at)
            if ASM:
                s = tl.full(h.shape, 2 * i, tl.int8)
                lo, hi = tl.inline_asm_elementwise(
                    _FIVE, "=r,=r,r,r,r", [q, h, s], dtype=(tl.int8, tl.int8), is_pure=True, pack=4
                )
            else:
                lo = (q & 15) | (((h >> (2 * i)) & 1) << 4)
                hi = ((q >> 4) & 15) | (((h >> (2 * i + 1)) & 1) << 4)
        if CODES == 4:
            h = tl.load(high + (first + g) // 2 * BN * 16 + at)
            if ASM:
                s = tl.full(h.shape, 4 * (i % 2), tl.int8)
                lo, hi = tl.inline_asm_elementwise(
                    _SIX, "=r,=r,r,r,r", [q, h, s], dtype=(tl.int8, tl.int8), is_pure=True, pack=4
                )
            else:
                lo = (q & 15) | (((h >> (4 * (i % 2))) & 3) << 4)
                hi = ((q >> 4) & 15) | (((h >> (4 * (i % 2) + 2)) & 3) << 4)
    return lo.to(tl.int8), hi.to(tl.int8)


@triton.jit
def whole(d0, d1, s0, s1, M, n, BN: tl.constexpr, CODES: tl.constexpr, MULS: tl.constexpr):
    """The exact integer of a group, offsets folded into the activation sums."""
    if MULS != 2:
        d0 = d0 + d1
        s0 = s0 + s1
    if CODES == 0:
        d0 = 2 * d0 - 15 * s0
    if CODES == 4:
        d0 = d0 - 32 * s0
        d1 = d1 - 32 * s1
    if CODES == 5:
        d0 = d0 - s0
    m = M.to(tl.pointer_type(tl.int8)) + n
    if MULS == 1:
        d0 = d0 * tl.load(m).to(tl.int32)
    if MULS == 2:
        d0 = d0 * tl.load(m).to(tl.int32) + d1 * tl.load(m + BN).to(tl.int32)
    return d0


@triton.jit
def scale(D, first, g, n, BN: tl.constexpr, DG: tl.constexpr):
    """The scale of group g as float32 [1, BN]."""
    return tl.load(D.to(tl.pointer_type(tl.float16)) + (first + g) // DG * BN + n).to(tl.float32)


@triton.jit
def low(base, O4, O5, first, g, n, q, xs, BN: tl.constexpr, DG: tl.constexpr):
    """The minimum's term of group g."""
    mm = tl.load((base + O4).to(tl.pointer_type(tl.int8)) + (first + g) * BN + n).to(tl.int32)
    return ((mm * q).to(tl.float32) * xs) * scale(base + O5, first, g, n, BN, DG)
