"""Products of integer rows and integer matrices, in the order of `engine/reference/linear.py`.

The term of a group is (float(I) * s) * d, minus (float(M) * s) * d_min where the type has minima;
16 terms in turn, from 0, make a segment, and segments are added in ascending order. I and M are
exact integers, so how they are computed does not matter: `few` takes dp4a and a warp a segment,
`many` takes int8 tensor cores and 16 rows at a time.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated,union-attr,misc"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import lanes, scalar, unpack
from engine.kernels.quantise import integers, packed_info


@triton.jit
def term(d0, d1, xs, s0, s1, i: tl.constexpr, m, d, mm, dm, FORM: tl.constexpr):
    """The term of group i. d0, d1: dots of fields and activations of the halves; xs, s0, s1: scale
    and sums of the activations; m, d, mm, dm: what `unpack.numbers` loaded."""
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
def few_tile(CODES, INFO, tile, row, rows, FORM: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
             LEVELS: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """R rows times one tile: [B, R]. 2**LEVELS segments at a time, a warp each.

    row: the first of R rows; those from `rows` on are computed as the last one.
    """
    S: tl.constexpr = 1 << LEVELS
    SEGMENTS: tl.constexpr = (FORM.groups + 15) // 16
    UNROLLED: tl.constexpr = FORM.unrolled
    ALL: tl.constexpr = FORM.groups % (16 * S) == 0
    W: tl.constexpr = 4 if ASM else 16
    UNIT: tl.constexpr = tl.int32 if ASM else tl.int8
    words = tile.to(tl.pointer_type(tl.int32))
    units = tile.to(tl.pointer_type(UNIT))
    # Axes: segments (a warp each), outputs (over the threads of a warp), rows and units (in a
    # thread). Planes are loaded as [S, B * W], which leaves the compiler no other way to lay them.
    n = tl.arange(0, B)[None, :, None]
    unit = tl.arange(0, W)[None, None, None, :]
    at = tl.arange(0, B * W)[None, :]
    r = tl.minimum(row + tl.arange(0, R), rows - 1).to(tl.int64)[None, None, :] * (SEGMENTS * 16)
    total = tl.zeros([B * R], tl.float32)
    for first in range(0, SEGMENTS, S):
        g2 = (first + tl.arange(0, S))[:, None] * 16
        g = g2[:, :, None]
        low, high = unpack.planes(units, g2, at, FORM, B, W, ALL)
        m, d = unpack.numbers(words, g, n, FORM, False, B, ALL)
        mm, dm = m, d
        if FORM.minimum:
            mm, dm = unpack.numbers(words, g, n, FORM, True, B, ALL)
        # Without it the compiler moves every load down to its use, and nothing is in flight.
        tl.debug_barrier()
        acc = tl.zeros([S, B, R], tl.float32)
        for i in tl.static_range(UNROLLED):
            lo, hi = unpack.codes(low, high, i, FORM, W, ASM)
            lo = tl.reshape(lo, [S, B, 1, W])
            hi = tl.reshape(hi, [S, B, 1, W])
            ok = g + i < FORM.groups
            group = r + g + i
            x = CODES.to(tl.pointer_type(UNIT)) + group[:, :, :, None] * (2 * W) + unit
            d0 = unpack.dot(lo, unpack.load(x, ok[:, :, :, None], ALL), ASM)
            d1 = unpack.dot(hi, unpack.load(x + W, ok[:, :, :, None], ALL), ASM)
            info = unpack.load(INFO + group, ok, ALL)
            xs = info.to(tl.int32).to(tl.float32, bitcast=True)
            sums = (info >> 32).to(tl.int32)
            s0 = (sums << 16) >> 16
            acc = acc + term(d0, d1, xs, s0, sums >> 16, i, m, d, mm, dm, FORM)
        total = lanes.add_in_order(total, tl.reshape(acc, [S, B * R]), B * R, LEVELS)
    return tl.reshape(total, [B, R])


@triton.jit
def start(RECORD, EXPERTS, block, USED: tl.constexpr):
    """Where the matrix of a row block begins. With USED, RECORD holds the addresses of a stack, and
    the block's matrix is EXPERTS[block]."""
    if USED:
        at = tl.load(RECORD + tl.load(EXPERTS + block)).to(tl.pointer_type(tl.uint8))
        base = tl.multiple_of(at, 16)
    else:
        base = RECORD
    return base


@triton.jit(do_not_specialize=["rows"])
def few(CODES, INFO, RECORD, EXPERTS, OUT, rows, N: tl.constexpr, USED: tl.constexpr,
        FORM: tl.constexpr, R: tl.constexpr, B: tl.constexpr, LEVELS: tl.constexpr,
        ASM: tl.constexpr):  # fmt: skip
    """OUT[rows, N]. Grid (tiles, row blocks of R).

    With USED, row p of OUT is matrix EXPERTS[p] of a stack times row p // USED; then R is 1.
    """
    tile = tl.program_id(0)
    block = tl.program_id(1)
    row = block // USED if USED else block * R
    last = rows // USED if USED else rows
    at = start(RECORD, EXPERTS, block, USED) + tile.to(tl.int64) * FORM.tile_bytes
    out = few_tile(CODES, INFO, at, row, last, FORM, R, B, LEVELS, ASM)
    n = (tile * B + tl.arange(0, B))[:, None]
    p = (block * R + tl.arange(0, R))[None, :]
    tl.store(OUT + p.to(tl.int64) * N + n, out, mask=(n < N) & (p < rows))


@triton.jit(do_not_specialize=["rows"])
def few_gated(CODES, INFO, GATE, UP, EXPERTS, OUT, OUT_INFO, rows, N: tl.constexpr,
              USED: tl.constexpr, GATE_FORM: tl.constexpr, UP_FORM: tl.constexpr, R: tl.constexpr,
              B: tl.constexpr, LEVELS: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """silu(gate) * up as integers of the next product: a tile of 32 outputs is a group of it.

    Rows as in `few`; OUT and OUT_INFO as `quantise.py` says.
    """
    STRIDE: tl.constexpr = (N + 511) // 512 * 16
    tile = tl.program_id(0)
    block = tl.program_id(1)
    row = block // USED if USED else block * R
    last = rows // USED if USED else rows
    at = start(GATE, EXPERTS, block, USED) + tile.to(tl.int64) * GATE_FORM.tile_bytes
    g = few_tile(CODES, INFO, at, row, last, GATE_FORM, R, B, LEVELS, ASM)
    at = start(UP, EXPERTS, block, USED) + tile.to(tl.int64) * UP_FORM.tile_bytes
    u = few_tile(CODES, INFO, at, row, last, UP_FORM, R, B, LEVELS, ASM)
    q, s = integers(tl.trans(scalar.silu(g) * u), R)
    p = block * R + tl.arange(0, R)
    group = p.to(tl.int64) * STRIDE + tile
    tl.store(OUT_INFO + group, packed_info(q, s, R), mask=p < rows)
    to = OUT + group[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(to, q.to(tl.int8), mask=p[:, None] < rows)


@triton.jit(do_not_specialize=["rows"])
def many(CODES, INFO, RECORD, EXPERTS, PAIRS, OUT, rows, N: tl.constexpr, USED: tl.constexpr,
         FORM: tl.constexpr, R: tl.constexpr, B: tl.constexpr, SPLIT: tl.constexpr,
         ASM: tl.constexpr):  # fmt: skip
    """OUT[rows, N] from woven codes. Grid (tiles, row blocks of R, 1), a warp a program: more would
    wait for each other at every move of a tensor between threads.

    With SPLIT there is a program a segment, grid (tiles, row blocks, segments), and its sum is
    OUT[segment, rows, N], for `add_segments`. With USED, block b is matrix EXPERTS[b] of a stack
    (-1: nothing to do) times rows p // USED for p = PAIRS[b * R], ..., whose results are rows p of
    OUT; p = -1: none.
    """
    SEGMENTS: tl.constexpr = (FORM.groups + 15) // 16
    UNROLLED: tl.constexpr = FORM.unrolled
    ALL: tl.constexpr = FORM.groups % 16 == 0
    tile = tl.program_id(0)
    block = tl.program_id(1)
    r = block * R + tl.arange(0, R)
    if USED:
        if tl.load(EXPERTS + block) < 0:
            return
        r = tl.load(PAIRS + r)
        x_row = tl.maximum(r, 0) // USED
    else:
        x_row = tl.minimum(r, rows - 1)
        r = tl.where(r < rows, r, -1)
    base = start(RECORD, EXPERTS, block, USED) + tile.to(tl.int64) * FORM.tile_bytes
    words = base.to(tl.pointer_type(tl.int32))
    codes = base.to(tl.pointer_type(tl.int8))
    # Axes: one, rows or inputs, outputs.
    n = tl.arange(0, B)[None, None, :]
    at = tl.arange(0, B)[None, :, None] * 16 + tl.arange(0, 16)[None, None, :]
    k = tl.arange(0, 32)[None, None, :]
    row = x_row.to(tl.int64)[None, :, None] * (SEGMENTS * 16)
    ones = tl.full([1, 32, B], 1, tl.int8)
    total = tl.zeros([1, R, B], tl.float32)
    first = tl.program_id(2) if SPLIT else 0
    for segment in range(first, first + 1 if SPLIT else SEGMENTS):
        g = segment * 16 + tl.zeros([1, 1, 1], tl.int32)
        low, high = unpack.planes(codes, g, at, FORM, B, 16, ALL)
        m, d = unpack.numbers(words, g, n, FORM, False, B, ALL)
        mm, dm = m, d
        if FORM.minimum:
            mm, dm = unpack.numbers(words, g, n, FORM, True, B, ALL)
        # Without it the compiler moves every load down to its use, and nothing is in flight.
        tl.debug_barrier()
        acc = tl.zeros([1, R, B], tl.float32)
        for i in tl.static_range(UNROLLED):
            lo, hi = unpack.codes(low, high, i, FORM, 16, ASM)
            w = tl.permute(tl.reshape(tl.join(lo, hi), [1, B, 32]), (0, 2, 1))
            group = row + g + i
            ok = g + i < FORM.groups
            x = unpack.load(CODES + group * 32 + k, ok, ALL)
            info = unpack.load(INFO + group, ok, ALL)
            xs = info.to(tl.int32).to(tl.float32, bitcast=True)
            sums = (info >> 32).to(tl.int32)
            s0 = (sums << 16) >> 16
            s1 = sums >> 16
            # Woven: even places hold the first half of a group.
            x0 = tl.where(k % 2 == 0, x, 0).to(tl.int8)
            x1 = tl.where(k % 2 == 0, 0, x).to(tl.int8)
            if FORM.multipliers == 2:
                d0 = tl.dot(x0, w, out_dtype=tl.int32)
                d1 = tl.dot(x1, w, out_dtype=tl.int32)
            else:
                d0 = tl.dot(x, w, out_dtype=tl.int32)
                d1 = tl.zeros_like(d0)
            if FORM.minimum:
                # Products give the sums as well: where threads hold the other dots.
                if FORM.minimum_multipliers == 2 or FORM.multipliers == 2:
                    s0 = tl.dot(x0, ones, out_dtype=tl.int32)
                    s1 = tl.dot(x1, ones, out_dtype=tl.int32)
                else:
                    s0 = tl.dot(x, ones, out_dtype=tl.int32)
                    s1 = tl.zeros_like(s0)
            acc = acc + term(d0, d1, xs, s0, s1, i, m, d, mm, dm, FORM)
        total = total + acc
    n = (tile * B + tl.arange(0, B))[None, :]
    r = r[:, None]
    out = OUT + first.to(tl.int64) * rows * N if SPLIT else OUT
    mask = (n < N) & (r >= 0)
    tl.store(out + r.to(tl.int64) * N + n, tl.reshape(total, [R, B]), mask=mask)


@triton.jit
def add_segments(PARTS, OUT, count, SEGMENTS: tl.constexpr, B: tl.constexpr):
    """OUT[i] = PARTS[0, i] + PARTS[1, i] + ..., in this order. count: numbers in OUT."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    live = at < count
    parts = ()
    for s in tl.static_range(SEGMENTS):
        parts = parts + (tl.load(PARTS + at + s * count.to(tl.int64), mask=live, other=0.0),)
    total = parts[0]
    for s in tl.static_range(1, SEGMENTS):
        total = total + parts[s]
    tl.store(OUT + at, total, mask=live)
