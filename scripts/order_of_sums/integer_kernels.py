"""Integer linear in one order of sums: a dp4a kernel for few rows, a tensor-core kernel for tiles.

Order: term `t_g = (float(I_g) * s_g) * d_g` of each group of 32, minus
`(float(M_g) * s_g) * dmin_g` where the type has minima; 16 terms added in order make a
segment; segments are added ascending.
When several programs share a tile, the one that finishes last adds their partial sums in order.
"""

import triton
import triton.language as tl

from scripts.order_of_sums import unpack


@triton.jit
def _finish(
    total,
    P,
    CNT,
    OUT,
    tile,
    part,
    parts,
    pair,
    pairs,
    rows_left,
    r,
    N,
    R: tl.constexpr,
    BN: tl.constexpr,
):
    """Stores a tile, or its partial sum; the last program of a tile adds all parts in order."""
    tiles = N // BN
    cell = (pair * R + r)[:, None] * N + tile * BN + tl.arange(0, BN)[None, :]
    live = (r < rows_left)[:, None]
    if parts == 1:
        tl.store(OUT + cell, total, mask=live)
    else:
        stride = (pairs * R).to(tl.int64) * N
        tl.store(P + part * stride + cell, total)
        tl.debug_barrier()
        seen = tl.atomic_add(CNT + pair * tiles + tile, 1, sem="acq_rel")
        if seen == parts - 1:
            tl.debug_barrier()
            out = tl.load(P + cell, cache_modifier=".cg")
            for p in range(1, parts):
                out = out + tl.load(P + p * stride + cell, cache_modifier=".cg")
            tl.store(OUT + cell, out, mask=live)
            tl.store(CNT + pair * tiles + tile, 0)


@triton.jit
def _base(W, EID, pair, EXPERTS: tl.constexpr):
    """The record's address: the matrix itself, or an expert's entry in a table of addresses."""
    if EXPERTS:
        at = tl.load(W + tl.load(EID + pair)).to(tl.pointer_type(tl.uint8))
        base = tl.multiple_of(at, 16)
    else:
        base = W
    return base


@triton.jit
def gemv(XW, XS, XSUM, W, EID, ROWS, P, CNT, OUT, rows_left, N, K, segs_part, O1, O2, O3, O4, O5,
         R: tl.constexpr, BN: tl.constexpr, CODES: tl.constexpr, MULS: tl.constexpr,
         DG: tl.constexpr, MIN: tl.constexpr, EXPERTS: tl.constexpr,
         ASM: tl.constexpr):  # fmt: skip
    """OUT[pair, R, N] by dp4a. Grid (N / BN, parts, pairs); XW int32 [rows, G, 8]."""
    tile = tl.program_id(0)
    part = tl.program_id(1)
    pair = tl.program_id(2)
    G = K // 32
    base = _base(W, EID, pair, EXPERTS)
    n = tl.arange(0, BN)
    w4 = tl.arange(0, 4)
    r = tl.arange(0, R)
    row = r
    if EXPERTS:
        row = tl.load(ROWS + pair * R + r)
    at = n[:, None] * 4 + w4[None, :]
    first = tile.to(tl.int64) * G
    total = tl.zeros([R, BN], tl.float32)
    for s in range(part * segs_part, min((part + 1) * segs_part, (G + 15) // 16)):
        acc = tl.zeros([R, BN], tl.float32)
        for g0 in range(s * 16, min(s * 16 + 16, G), 4):
            for i in tl.static_range(4):
                g = g0 + i
                lo, hi = unpack.words(base, O1, first, g, i, at, BN, CODES, ASM)
                x = XW + (row * G + g)[:, None] * 8 + w4[None, :]
                lo, xl = tl.broadcast(lo[None, :, :], tl.load(x)[:, None, :])
                hi, xh = tl.broadcast(hi[None, :, :], tl.load(x + 4)[:, None, :])
                qs = XSUM + (row * G + g) * 2
                d0 = tl.sum(unpack.dot4(lo, xl, tl.zeros_like(lo), ASM), axis=2)
                d1 = tl.sum(unpack.dot4(hi, xh, tl.zeros_like(hi), ASM), axis=2)
                whole = unpack.whole(
                    d0,
                    d1,
                    tl.load(qs)[:, None],
                    tl.load(qs + 1)[:, None],
                    base + O2 + (first + g) * BN * MULS,
                    n[None, :],
                    BN,
                    CODES,
                    MULS,
                )
                xs = tl.load(XS + row * G + g)[:, None]
                d = unpack.scale(base + O3, first, g, n[None, :], BN, DG)
                t = (whole.to(tl.float32) * xs) * d
                if MIN:
                    q = (tl.load(qs) + tl.load(qs + 1))[:, None]
                    t = t - unpack.low(base, O4, O5, first, g, n[None, :], q, xs, BN, DG)
                acc = acc + t
        total = total + acc
    _finish(
        total,
        P,
        CNT,
        OUT,
        tile,
        part,
        tl.num_programs(1),
        pair,
        tl.num_programs(2),
        rows_left,
        r,
        N,
        R,
        BN,
    )


@triton.jit
def mma(XV, XS, XSUM, W, EID, ROWS, P, CNT, OUT, rows_left, N, K, segs_part, O1, O2, O3, O4, O5,
        R: tl.constexpr, BN: tl.constexpr, CODES: tl.constexpr, MULS: tl.constexpr,
        DG: tl.constexpr, MIN: tl.constexpr, EXPERTS: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """The same by int8 tensor cores; XV int8 [rows, K], woven as records.Activations says."""
    tile = tl.program_id(0)
    part = tl.program_id(1)
    pair = tl.program_id(2)
    G = K // 32
    n = tl.arange(0, BN)
    r = tl.arange(0, R)
    k32 = tl.arange(0, 32)
    row = pair * R + r
    base = _base(W, EID, pair, EXPERTS)
    if EXPERTS:
        row = tl.load(ROWS + pair * R + r)
    at = n[:, None] * 16 + tl.arange(0, 16)[None, :]
    first = tile.to(tl.int64) * G
    total = tl.zeros([R, BN], tl.float32)
    for s in range(part * segs_part, min((part + 1) * segs_part, (G + 15) // 16)):
        acc = tl.zeros([R, BN], tl.float32)
        for g0 in range(s * 16, min(s * 16 + 16, G), 4):
            for i in tl.static_range(4):
                g = g0 + i
                lo, hi = unpack.bytes16(base, O1, first, g, i, at, BN, CODES, ASM)
                w = tl.trans(tl.reshape(tl.join(lo, hi), [BN, 32]))
                x = tl.load(XV + row[:, None] * K + g * 32 + k32[None, :])
                qs = XSUM + (row * G + g) * 2
                if MULS == 2:
                    even = (k32 % 2 == 0)[None, :]
                    d0 = tl.dot(tl.where(even, x, 0).to(tl.int8), w, out_dtype=tl.int32)
                    d1 = tl.dot(tl.where(even, 0, x).to(tl.int8), w, out_dtype=tl.int32)
                else:
                    d0 = tl.dot(x, w, out_dtype=tl.int32)
                    d1 = tl.zeros_like(d0)
                whole = unpack.whole(
                    d0,
                    d1,
                    tl.load(qs)[:, None],
                    tl.load(qs + 1)[:, None],
                    base + O2 + (first + g) * BN * MULS,
                    n[None, :],
                    BN,
                    CODES,
                    MULS,
                )
                xs = tl.load(XS + row * G + g)[:, None]
                d = unpack.scale(base + O3, first, g, n[None, :], BN, DG)
                t = (whole.to(tl.float32) * xs) * d
                if MIN:
                    q = (tl.load(qs) + tl.load(qs + 1))[:, None]
                    t = t - unpack.low(base, O4, O5, first, g, n[None, :], q, xs, BN, DG)
                acc = acc + t
        total = total + acc
    _finish(
        total,
        P,
        CNT,
        OUT,
        tile,
        part,
        tl.num_programs(1),
        pair,
        tl.num_programs(2),
        rows_left - pair * R * (1 - EXPERTS),
        r,
        N,
        R,
        BN,
    )
