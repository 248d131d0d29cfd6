"""Sections of a tile of integers, as `form.py` describes them, to integers and scales.

Integers are exact, so no order matters here. A segment is 16 groups. Loads of a whole segment come
before what uses them: that is what keeps memory busy.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

_DP4A = tl.constexpr("dp4a.s32.s32 $0, $1, $2, $3;")
_NIBBLES = tl.constexpr(
    "{ .reg .b32 t; shr.u32 t, $2, 4; and.b32 $1, t, 0x0F0F0F0F; and.b32 $0, $2, 0x0F0F0F0F; }"
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


@triton.constexpr_function
def _look_up(table):
    """Assembly for eight look-ups: nibbles of $2 are indices into the 16 bytes of four words."""
    a, b, c, d = (f"0x{word & 0xFFFFFFFF:08X}" for word in table)
    return (
        "{ .reg .b32 t,s,l,h,a,b; and.b32 t,$2,0x77777777; and.b32 s,$2,0x88888888;"
        " shr.u32 s,s,1; or.b32 s,s,0x32103210;"
        f" prmt.b32 l,{a},{b},t; prmt.b32 h,{c},{d},t; prmt.b32 a,l,h,s;"
        " shr.u32 t,t,16; shr.u32 s,s,16;"
        f" prmt.b32 l,{a},{b},t; prmt.b32 h,{c},{d},t; prmt.b32 b,l,h,s;"
        " prmt.b32 $0,a,b,0x6420; prmt.b32 $1,a,b,0x7531; }"
    )


@triton.jit
def dot(a, b, ASM: tl.constexpr):
    """Dot products of signed bytes over the last axis, int32: of words of four where ASM says so,
    else of single bytes."""
    a, b = tl.broadcast(a, b)
    if ASM:
        products = tl.inline_asm_elementwise(
            _DP4A, "=r,r,r,r", [a, b, tl.zeros_like(a)], dtype=tl.int32, is_pure=True, pack=1
        )
    else:
        products = a.to(tl.int32) * b.to(tl.int32)
    return tl.sum(products, axis=3)


@triton.jit
def _entries(fields, FORM: tl.constexpr, W: tl.constexpr):
    """Table entries for the bytes of a tensor, without inline assembly."""
    word = fields.to(tl.int32)
    out = tl.zeros_like(word)
    for j in tl.static_range(4 if W == 4 else 1):
        index = (word >> (8 * j)) & 15
        value = tl.zeros_like(word)
        for e in tl.static_range(16):
            entry: tl.constexpr = (FORM.table[e // 4] >> (8 * (e % 4))) & 255
            value = tl.where(index == e, entry, value)
        out = out | (value << (8 * j))
    return out.to(fields.dtype)


@triton.jit
def load(p, ok, ALL: tl.constexpr):
    return tl.load(p) if ALL else tl.load(p, mask=ok, other=0)


@triton.jit
def planes(tile, g0, at, FORM: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
           ALL: tl.constexpr):  # fmt: skip
    """Loads the planes of the segment that begins with group g0: two tuples of tensors.

    Planes are read as W units for 16 elements: 4 words, or 16 bytes. tile: pointer to the units of
    a tile; at: units of a group. ALL: every segment is whole.
    """
    BLOCK: tl.constexpr = B * W
    HIGH: tl.constexpr = FORM.at_high * W // 16
    UNROLLED: tl.constexpr = FORM.unrolled
    low = ()
    high = ()
    for i in tl.static_range(UNROLLED):
        ok = g0 + i < FORM.padded
        if FORM.bits == 8:
            p = tile + (g0 + i) * (2 * BLOCK) + at
            low = low + (load(p, ok, ALL),)
            high = high + (load(p + BLOCK, ok, ALL),)
        elif FORM.bits == 2:
            if i % 2 == 0:
                low = low + (load(tile + (g0 + i) // 2 * BLOCK + at, ok, ALL),)
        else:
            low = low + (load(tile + (g0 + i) * BLOCK + at, ok, ALL),)
            if FORM.bits == 5 and i % 4 == 0:
                high = high + (load(tile + HIGH + (g0 + i) // 4 * BLOCK + at, ok, ALL),)
            if FORM.bits == 6 and i % 2 == 0:
                high = high + (load(tile + HIGH + (g0 + i) // 2 * BLOCK + at, ok, ALL),)
    return low, high


@triton.jit
def codes(low, high, i: tl.constexpr, FORM: tl.constexpr, W: tl.constexpr, ASM: tl.constexpr):
    """Fields, or table entries, of group i of what `planes` loaded: elements 0..15 and 16..31."""
    ONES: tl.constexpr = 0x01010101 if W == 4 else 1
    # Bytes are handled four at a time, which only inline assembly can say.
    PACKED: tl.constexpr = ASM and W == 16
    if FORM.bits == 8:
        lo = low[i]
        hi = high[i]
    elif FORM.bits == 2:
        if PACKED:
            s = tl.full(low[i // 2].shape, 4 * (i % 2), tl.int8)
            lo, hi = tl.inline_asm_elementwise(
                _TWO, "=r,=r,r,r", [low[i // 2], s], dtype=(tl.int8, tl.int8), is_pure=True, pack=4
            )
        else:
            word = low[i // 2] >> (4 * (i % 2))
            lo = word & (3 * ONES)
            hi = (word >> 2) & (3 * ONES)
    elif len(FORM.table) > 0 and ASM:
        lo, hi = tl.inline_asm_elementwise(
            _look_up(FORM.table),
            "=r,=r,r",
            [low[i]],
            dtype=(tl.int32, tl.int32) if W == 4 else (tl.int8, tl.int8),
            is_pure=True,
            pack=1 if W == 4 else 4,
        )
    elif FORM.bits == 4 and PACKED:
        lo, hi = tl.inline_asm_elementwise(
            _NIBBLES, "=r,=r,r", [low[i]], dtype=(tl.int8, tl.int8), is_pure=True, pack=4
        )
    elif FORM.bits == 5 and PACKED:
        s = tl.full(low[i].shape, 2 * (i % 4), tl.int8)
        lo, hi = tl.inline_asm_elementwise(
            _FIVE, "=r,=r,r,r,r", [low[i], high[i // 4], s], dtype=(tl.int8, tl.int8),
            is_pure=True, pack=4,
        )  # fmt: skip
    elif FORM.bits == 6 and PACKED:
        s = tl.full(low[i].shape, 4 * (i % 2), tl.int8)
        lo, hi = tl.inline_asm_elementwise(
            _SIX, "=r,=r,r,r,r", [low[i], high[i // 2], s], dtype=(tl.int8, tl.int8),
            is_pure=True, pack=4,
        )  # fmt: skip
    else:
        lo = low[i] & (15 * ONES)
        hi = (low[i] >> 4) & (15 * ONES)
        if FORM.bits == 5:
            top = high[i // 4] >> (2 * (i % 4))
            lo = lo | ((top & ONES) << 4)
            hi = hi | (((top >> 1) & ONES) << 4)
        if FORM.bits == 6:
            top = high[i // 2] >> (4 * (i % 2))
            lo = lo | ((top & (3 * ONES)) << 4)
            hi = hi | (((top >> 2) & (3 * ONES)) << 4)
        if len(FORM.table) > 0:
            lo = _entries(lo, FORM, W)
            hi = _entries(hi, FORM, W)
    return lo, hi


@triton.jit
def numbers(tile, g0, n, FORM: tl.constexpr, MINIMUM: tl.constexpr, B: tl.constexpr,
            ALL: tl.constexpr):  # fmt: skip
    """Loads multipliers and scales of the segment that begins with group g0, of codes or of minima:
    two tuples of words.

    tile: pointer to the words of a tile; n: outputs. The first tuple holds the multipliers of the
    first halves, then of the second ones where there are two; four groups a word.
    """
    EACH: tl.constexpr = FORM.minimum_multipliers if MINIMUM else FORM.multipliers
    M: tl.constexpr = FORM.at_minimum_multiplier // 4 if MINIMUM else FORM.at_multiplier // 4
    D: tl.constexpr = FORM.at_minimum_scale // 4 if MINIMUM else FORM.at_scale // 4
    QUADS: tl.constexpr = FORM.unrolled // 4
    multipliers = ()
    for h in tl.static_range(EACH):
        for i in tl.static_range(QUADS):
            p = tile + M + (h * (FORM.padded // 4) + g0 // 4 + i) * B + n
            multipliers = multipliers + (load(p, g0 + 4 * i < FORM.padded, ALL),)
    scales = ()
    PER_WORD: tl.constexpr = FORM.span if FORM.wide else 2 * FORM.span
    WORDS: tl.constexpr = (FORM.unrolled + PER_WORD - 1) // PER_WORD
    for i in tl.static_range(WORDS):
        p = tile + D + (g0 // PER_WORD + i) * B + n
        scales = scales + (load(p, g0 + PER_WORD * i < FORM.padded, ALL),)
    return multipliers, scales


@triton.jit
def multiplier(words, i: tl.constexpr, h: tl.constexpr, FORM: tl.constexpr):
    """The multiplier of half h of group i, of the words that `numbers` loaded."""
    return (words[h * (FORM.unrolled // 4) + i // 4] << (24 - 8 * (i % 4))) >> 24


@triton.jit
def scale(words, i: tl.constexpr, FORM: tl.constexpr):
    """The scale of group i, float32."""
    if FORM.wide:
        d = words[i // FORM.span].to(tl.float32, bitcast=True)
    else:
        pair = words[i // (2 * FORM.span)]
        if (i // FORM.span) % 2 == 1:
            pair = pair >> 16
        d = pair.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        if FORM.factor != 1.0:
            d = d * FORM.factor
    return d
