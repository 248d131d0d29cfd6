"""Products of integer rows and integer matrices, in the order of `engine/reference/linear.py`.

The term of a group is (float(I) * s) * d, minus (float(M) * s) * d_min where the type has minima;
16 terms in turn, from 0, make a segment, and segments are added in ascending order. I and M are
exact integers, so how they are computed does not matter: `few` takes dp4a and a warp a segment,
`many` takes int8 tensor cores and 16 rows at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import lanes, unpack


@triton.jit
def term(d0, d1, s0, s1, xs, i: tl.constexpr, m, d, mm, dm, FORM: tl.constexpr):
    """The term of group i. d0, d1: dots of fields and activations of the halves, s0, s1: sums of
    activations, xs: their scale; m, d, mm, dm: what `unpack.numbers` loaded."""
    if FORM.multipliers < 2:
        d0 = d0 + d1
        q0 = s0 + s1
    else:
        q0 = s0
    if FORM.step != 1:
        d0 = d0 * FORM.step
        d1 = d1 * FORM.step
    if FORM.offset != 0:
        d0 = d0 - q0 * FORM.offset
        d1 = d1 - s1 * FORM.offset
    if FORM.multipliers >= 1:
        d0 = d0 * unpack.multiplier(m, i, 0, FORM)
    if FORM.multipliers == 2:
        d0 = d0 + d1 * unpack.multiplier(m, i, 1, FORM)
    t = (d0.to(tl.float32) * xs) * unpack.scale(d, i, FORM)
    if FORM.minimum:
        if FORM.minimum_multipliers == 0:
            low = s0 + s1
        elif FORM.minimum_multipliers == 1:
            low = (s0 + s1) * unpack.multiplier(mm, i, 0, FORM)
        else:
            low = s0 * unpack.multiplier(mm, i, 0, FORM) + s1 * unpack.multiplier(mm, i, 1, FORM)
        t = t - (low.to(tl.float32) * xs) * unpack.scale(dm, i, FORM)
    return t


@triton.jit
def few_tile(CODES, SCALE, SUMS, tile, row, rows, FORM: tl.constexpr, R: tl.constexpr,
             B: tl.constexpr, LEVELS: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """R rows times one tile: a tuple of R tensors [B]. 2**LEVELS segments at a time, a warp each.

    row: the first of R rows; those from `rows` on are computed as the last one.
    """
    S: tl.constexpr = 1 << LEVELS
    SEGMENTS: tl.constexpr = (FORM.groups + 15) // 16
    ALL: tl.constexpr = FORM.padded % (16 * S) == 0
    W: tl.constexpr = 4 if ASM else 16
    UNIT: tl.constexpr = tl.int32 if ASM else tl.int8
    words = tile.to(tl.pointer_type(tl.int32))
    units = tile.to(tl.pointer_type(UNIT))
    x_units = CODES.to(tl.pointer_type(UNIT))
    n = tl.arange(0, B)[None, :]
    unit = tl.arange(0, W)[None, None, :]
    at = tl.arange(0, B)[None, :, None] * W + unit
    totals = ()
    for r in tl.static_range(R):
        totals = totals + (tl.zeros([B], tl.float32),)
    for first in tl.static_range(0, SEGMENTS, S):
        seg = first + tl.arange(0, S)
        g2 = (seg * 16)[:, None]
        g3 = g2[:, :, None]
        low, high = unpack.planes(units, g3, at, FORM, B, W, ALL)
        m, d = unpack.numbers(words, g2, n, FORM, False, B, ALL)
        mm, dm = m, d
        if FORM.minimum:
            mm, dm = unpack.numbers(words, g2, n, FORM, True, B, ALL)
        accs = ()
        for r in tl.static_range(R):
            accs = accs + (tl.zeros([S, B], tl.float32),)
        for i in tl.static_range(FORM.unrolled):
            lo, hi = unpack.codes(low, high, i, FORM, W, ASM)
            new = ()
            for r in tl.static_range(R):
                at_row = tl.minimum(row + r, rows - 1).to(tl.int64) * (SEGMENTS * 16)
                ok = g2 + i < SEGMENTS * 16
                group = at_row + g2 + i
                x = x_units + group[:, :, None] * (2 * W) + unit
                xl = unpack.load(x, ok[:, :, None], ALL)
                xh = unpack.load(x + W, ok[:, :, None], ALL)
                xs = unpack.load(SCALE + group, ok, ALL)
                s0 = unpack.load(SUMS + group * 2, ok, ALL)
                s1 = unpack.load(SUMS + group * 2 + 1, ok, ALL)
                d0 = unpack.dot(lo, xl, ASM)
                d1 = unpack.dot(hi, xh, ASM)
                t = term(d0, d1, s0, s1, xs, i, m, d, mm, dm, FORM)
                new = new + (accs[r] + t,)
            accs = new
        after = ()
        for r in tl.static_range(R):
            after = after + (lanes.add_in_order(totals[r], accs[r], B, LEVELS),)
        totals = after
    return totals


@triton.jit(do_not_specialize=["rows"])
def few(CODES, SCALE, SUMS, RECORD, EXPERTS, OUT, rows, N: tl.constexpr, USED: tl.constexpr,
        FORM: tl.constexpr, R: tl.constexpr, B: tl.constexpr, LEVELS: tl.constexpr,
        ASM: tl.constexpr):  # fmt: skip
    """OUT[rows, N]. Grid (tiles, row blocks of R).

    With USED, RECORD holds the addresses of a stack, and row p of OUT is matrix EXPERTS[p] times
    row p // USED; then R is 1.
    """
    tile = tl.program_id(0)
    block = tl.program_id(1)
    if USED:
        at = tl.load(RECORD + tl.load(EXPERTS + block)).to(tl.pointer_type(tl.uint8))
        base = tl.multiple_of(at, 16)
        row = block // USED
        last = rows // USED
    else:
        base = RECORD
        row = block * R
        last = rows
    base = base + tile.to(tl.int64) * FORM.tile_bytes
    totals = few_tile(CODES, SCALE, SUMS, base, row, last, FORM, R, B, LEVELS, ASM)
    n = tile * B + tl.arange(0, B)
    for r in tl.static_range(R):
        p = block * R + r
        tl.store(OUT + p.to(tl.int64) * N + n, totals[r], mask=n < tl.where(p < rows, N, 0))


@triton.jit(do_not_specialize=["rows"])
def many(CODES, SCALE, SUMS, RECORD, OUT, rows, N: tl.constexpr, FORM: tl.constexpr,
         R: tl.constexpr, B: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """OUT[rows, N] from woven codes. Grid (tiles, row blocks of R)."""
    SEGMENTS: tl.constexpr = (FORM.groups + 15) // 16
    ALL: tl.constexpr = FORM.padded % 16 == 0
    tile = tl.program_id(0)
    base = RECORD + tile.to(tl.int64) * FORM.tile_bytes
    words = base.to(tl.pointer_type(tl.int32))
    codes = base.to(tl.pointer_type(tl.int8))
    n = tl.arange(0, B)[None, :]
    at = tl.arange(0, B)[:, None] * 16 + tl.arange(0, 16)[None, :]
    k = tl.arange(0, 32)[None, :]
    r = tl.program_id(1) * R + tl.arange(0, R)
    row = tl.minimum(r, rows - 1).to(tl.int64)[:, None] * (SEGMENTS * 16)
    total = tl.zeros([R, B], tl.float32)
    for segment in range(SEGMENTS):
        g0 = segment * 16 + tl.zeros([1, 1], tl.int32)
        low, high = unpack.planes(codes, g0, at, FORM, B, 16, ALL)
        m, d = unpack.numbers(words, g0, n, FORM, False, B, ALL)
        mm, dm = m, d
        if FORM.minimum:
            mm, dm = unpack.numbers(words, g0, n, FORM, True, B, ALL)
        acc = tl.zeros([R, B], tl.float32)
        for i in tl.static_range(FORM.unrolled):
            lo, hi = unpack.codes(low, high, i, FORM, 16, ASM)
            w = tl.trans(tl.reshape(tl.join(lo, hi), [B, 32]))
            group = row + g0 + i
            x = tl.load(CODES + group * 32 + k)
            if FORM.multipliers == 2:
                # Woven: even places hold the first half of a group.
                d0 = tl.dot(tl.where(k % 2 == 0, x, 0).to(tl.int8), w, out_dtype=tl.int32)
                d1 = tl.dot(tl.where(k % 2 == 0, 0, x).to(tl.int8), w, out_dtype=tl.int32)
            else:
                d0 = tl.dot(x, w, out_dtype=tl.int32)
                d1 = tl.zeros_like(d0)
            s0 = tl.load(SUMS + group * 2)
            s1 = tl.load(SUMS + group * 2 + 1)
            xs = tl.load(SCALE + group)
            acc = acc + term(d0, d1, s0, s1, xs, i, m, d, mm, dm, FORM)
        total = total + acc
    n = tile * B + n
    r = r[:, None]
    tl.store(OUT + r.to(tl.int64) * N + n, total, mask=(n < N) & (r < rows))
