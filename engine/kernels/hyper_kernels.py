"""Kernels of hyper-connections; `hyper_connections.py` says what they compute and launches them."""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,misc,union-attr,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import unpack
from engine.kernels.dependent import wait
from engine.kernels.experts_product import square
from engine.kernels.inputs import store_groups
from engine.kernels.integer_product import (
    at_segment,
    input_of_blocks,
    limb_segment_terms,
    load_segment,
    segment_terms,
)
from engine.kernels.lanes import apart
from engine.kernels.norms import rms_factor
from engine.kernels.scalar import sigmoid, silu


@triton.jit(do_not_specialize=["groups", "counters"])
def normed_streams(
    X, NORM, VALUES, CODES, INFO, COUNTERS, eps, groups, counters, D: tl.constexpr,
    LEVELS: tl.constexpr, M: tl.constexpr, POWER: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The norm of each stream, D numbers of 2**LEVELS segments at most, as an input of matrices.
    Grid (rows, streams, parts of M groups). Zeros in the `counters` numbers (at most POWER) of each
    block of eight rows in COUNTERS."""
    row = tl.program_id(0)
    stream = tl.program_id(1)
    group = tl.program_id(2) * M + tl.arange(0, M)
    at = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    weight = tl.load(NORM + stream * D + at, mask=at < D, other=0.0)
    wait(PDL)
    start = (row.to(tl.int64) * tl.num_programs(1) + stream) * D
    # A number: as a tensor its layout, the same in all threads, would become that of all others.
    factor = tl.max(rms_factor(X + start, D, LEVELS, eps), axis=0)
    x = tl.load(X + start + at, mask=at < D, other=0.0)
    x = (x * factor) * weight
    tl.store(VALUES + start + at, x, mask=at < D)
    first = stream * (D // 32)
    store_groups(CODES, INFO, x, row, first + group, groups, group < D // 32, M)
    counter = tl.arange(0, POWER)
    mine = counter < tl.where(stream == 0, counters, 0)
    tl.store(COUNTERS + row // 8 * counters + counter, counter * 0, mask=mine)


@triton.jit(do_not_specialize=["n", "m", "rows", "quads", "groups", "step", "stored"])
def low(
    CODES, INFO, DOWN, INJECT, PARTS, COUNTERS, LOW, LOW_INFO, SHARES, n, m, rows, quads, groups,
    step, stored, FORM: tl.constexpr, DIVISOR: tl.constexpr, WHOLE: tl.constexpr,
    ASM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """silu(x / DIVISOR) of an input's products with DOWN (n outputs, a multiple of 32) as an input
    of matrices, and SHARES, 2 sigmoid(x / DIVISOR) of those with INJECT (m <= 16 outputs).

    Grid (pairs of segments, groups of 32 outputs of DOWN and perhaps one more for INJECT, blocks of
    8 rows). A warp takes a segment of 16 outputs. PARTS, float32 [row blocks, groups, segments, 2
    tiles, 4, 32], is where they meet: whoever comes last, as COUNTERS tell, adds them.
    """
    W: tl.constexpr = 4
    thread = tl.arange(0, 32 * W)
    lane = thread % 32
    warp = thread // 32
    group = tl.program_id(1)
    block = tl.program_id(2)
    segments = (quads + 3) // 4
    injects = group * 32 >= n
    base = tl.where(injects, INJECT.to(tl.int64), DOWN.to(tl.int64))
    tile = tl.where(injects, 0, group * 2 + warp % 2)
    segment = tl.program_id(0) * 2 + warp // 2
    near = tl.minimum(segment, segments - 1)
    words = quads * FORM.quad + segments * (8 * FORM.tail)
    at = base.to(tl.pointer_type(tl.int32)) + tile.to(tl.int64) * words
    x = input_of_blocks(CODES, INFO, block, step, (rows + 7) // 8, lane, 1)
    weights = load_segment(at, near, quads, lane, FORM, WHOLE, ASM)
    wait(PDL)
    own = at_segment(x, near, 1)
    left = groups - near * 16
    if FORM.bits == 16:
        acc = limb_segment_terms(weights, own, left, groups, 4, FORM, 2, True, WHOLE, W, ASM)
    else:
        acc = segment_terms(weights, own, left, FORM, 1, 2, True, WHOLE, False, W, ASM)
    counter = block * tl.num_programs(1) + group
    first = PARTS + (counter * segments).to(tl.int64) * 256
    to = first + near * 256 + (warp % 2 * 128 + lane)
    for c in tl.static_range(4):
        tl.store(to + c * 32, acc[c], mask=segment < segments)
    tl.debug_barrier()
    before = tl.atomic_add(COUNTERS + counter, 1)
    if before == tl.num_programs(0) - 1:
        r = tl.arange(0, 8)[:, None]
        o = tl.arange(0, 32)[None, :]
        part = first + (o // 16 * 128 + (o % 16 // 8 * 2 + r % 2) * 32 + (o % 8 * 4 + r // 2))
        total = tl.zeros([8, 32], tl.float32)
        for s in range(0, segments, 10):
            parts = ()
            for k in tl.static_range(10):
                there = r * 0 + o * 0 + (s + k) < segments
                parts = parts + (tl.load(part + (s + k) * 256, mask=there, other=0.0),)
            for k in tl.static_range(10):
                total = total + parts[k]
        y = tl.div_rn(total, tl.full([8, 32], DIVISOR, tl.float32))
        row = block * 8 + tl.arange(0, 8)
        if injects:
            at_share = SHARES + row[:, None] * m + o
            tl.store(at_share, 2.0 * sigmoid(y), mask=(row[:, None] < rows) & (o < m))
        else:
            store_groups(LOW, LOW_INFO, silu(y), row, group, stored, row < rows, 8)


@triton.jit(do_not_specialize=["rows", "groups", "step", "stored", "blocks"])
def up_mean(
    CODES, INFO, UP, XN, VALUES, OUT, OUT_INFO, rows, groups, step, stored, blocks,
    D: tl.constexpr, LEVELS: tl.constexpr, QUADS: tl.constexpr, FORM: tl.constexpr,
    ASM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """mean over the 2**LEVELS streams of sigmoid(x) * XN as an input of matrices, x: an input's
    products with UP, of one segment of QUADS quads. Grid (D / 32, shares of `blocks` blocks of 8
    rows).

    A warp takes 16 outputs of a stream, and keeps their weights for all its rows.
    """
    C: tl.constexpr = 1 << LEVELS
    W: tl.constexpr = 2 * C
    thread = tl.arange(0, 32 * W)
    lane = thread % 32
    warp = thread // 32
    tile = warp // 2 * (D // 16) + tl.program_id(0) * 2 + warp % 2
    words = QUADS * FORM.quad + 8 * FORM.tail
    at = UP.to(tl.pointer_type(tl.int32)) + tile.to(tl.int64) * words
    # All of them are there, so no load needs a condition.
    q0 = unpack.quad(at, lane, lane, 0, FORM, False, ASM)
    q1 = unpack.quad(at, lane, lane, min(1, QUADS - 1), FORM, False, ASM)
    q2 = unpack.quad(at, lane, lane, min(2, QUADS - 1), FORM, False, ASM)
    q3 = unpack.quad(at, lane, lane, QUADS - 1, FORM, False, ASM)
    tail = at + (QUADS * FORM.quad + lane // 4 * FORM.tail)
    weights = (q0, q1, q2, q3, unpack.words(tail, lane, 0, FORM.tail, False, ASM))
    wait(PDL)
    begin = tl.program_id(1) * blocks
    every = (rows + 7) // 8
    place = tl.arange(0, 256)
    stream = tl.arange(0, C)[:, None]
    column = tl.program_id(0) * 32 + place % 32
    for block in range(begin, tl.minimum(begin + blocks, every)):
        near = tl.minimum(block * 8 + place // 32, rows - 1).to(tl.int64)
        xn = tl.load(XN + (near[None, :] * C + stream) * D + column[None, :])
        x = input_of_blocks(CODES, INFO, block, step, every, lane, 1)
        if FORM.bits == 16:
            acc = limb_segment_terms(weights, x, groups, groups, QUADS, FORM, 2, True, False, W,
                                     ASM)  # fmt: skip
        else:
            acc = segment_terms(weights, x, groups, FORM, 1, 2, True, False, True, W, ASM)
        terms = apart(tl.trans(sigmoid(square(acc, 0, 2, W)) * xn), 256, LEVELS)
        # No zero stands before the first term, which may be -0.
        total = tl.reshape(terms[0], [256])
        for c in tl.static_range(1, C):
            # the bits of c in reverse
            total = total + tl.reshape(terms[((c & 1) << 1 | (c & 2) >> 1) >> (2 - LEVELS)], [256])
        total = tl.div_rn(total, tl.full([256], C, tl.float32))
        live = block * 8 + place // 32 < rows
        tl.store(VALUES + near * D + column, total, mask=live)
        row = block * 8 + tl.arange(0, 8)
        store_groups(OUT, OUT_INFO, tl.reshape(total, [8, 32]), row, tl.program_id(0), stored,
                     row < rows, 8)  # fmt: skip


@triton.jit(do_not_specialize=["n", "m"])
def activate(LOW, WEIGHTS, n, m, COUNT: tl.constexpr, B: tl.constexpr, PDL: tl.constexpr):
    """The activations of n numbers of LOW and of m of WEIGHTS, in place. Grid ((n + m) / B,)."""
    wait(PDL)
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    x = tl.load(LOW + at, mask=at < n, other=0.0)
    tl.store(LOW + at, silu(tl.div_rn(x, tl.full([B], COUNT, tl.float32))), mask=at < n)
    at = at - n
    live = (at >= 0) & (at < m)
    x = tl.load(WEIGHTS + at, mask=live, other=0.0)
    tl.store(WEIGHTS + at, 2.0 * sigmoid(tl.div_rn(x, tl.full([B], COUNT, tl.float32))), mask=live)


@triton.jit(do_not_specialize=["groups"])
def mean(MIX, XN, VALUES, CODES, INFO, groups, D, COUNT: tl.constexpr, PDL: tl.constexpr):
    """The mean over the streams of sigmoid(MIX) * XN as an input. Grid (rows, segments of D)."""
    wait(PDL)
    row = tl.program_id(0)
    group = tl.program_id(1) * 16 + tl.arange(0, 16)
    at = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    live = at < D
    total = tl.zeros([16, 32], tl.float32)
    for c in tl.static_range(COUNT):
        cell = (row.to(tl.int64) * COUNT + c) * D + at
        mix = sigmoid(tl.load(MIX + cell, mask=live, other=0.0))
        term = mix * tl.load(XN + cell, mask=live, other=0.0)
        # No zero stands before the first term, which may be -0.
        total = term if c == 0 else total + term
    total = tl.div_rn(total, tl.full([16, 32], COUNT, tl.float32))
    total = tl.where(live, total, 0.0)
    tl.store(VALUES + row.to(tl.int64) * D + at, total, mask=live)
    store_groups(CODES, INFO, total, row, group, groups, group < groups, 16)


@triton.jit
def write(
    STREAMS, WEIGHTS, Y, D: tl.constexpr, COUNT: tl.constexpr, B: tl.constexpr, PDL: tl.constexpr
):
    """STREAMS[r, c, d] += WEIGHTS[r, c] * Y[r, d]. Grid (D / B, rows)."""
    wait(PDL)
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * B + tl.arange(0, B)
    y = tl.load(Y + row * D + at, mask=at < D, other=0.0)
    for c in tl.static_range(COUNT):
        weight = tl.load(WEIGHTS + row * COUNT + c)
        stream = STREAMS + (row * COUNT + c) * D + at
        x = tl.load(stream, mask=at < D, other=0.0)
        tl.store(stream, x + weight * y, mask=at < D)
