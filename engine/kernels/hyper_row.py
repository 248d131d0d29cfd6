"""One row of hyper-connections in two launches, with matrices of two limbs.

`low_of_row` has a segment of one stream a program: it computes the stream's norm, quantises its
segment in registers, and multiplies. `up_of_row` adds the segments, in each program again, and goes
on from there. So nothing waits for the last of many programs.

Numbers of a row lie in a warp as a coalesced load has them: of a quad of groups, thread t has 4t to
4t + 3. Eight threads have a group. Tensor cores get a column for each limb of each of the four
groups, so thread 4 * n + q finds all sums of group q for outputs n and n + 8, as in `one_row.py`.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,misc,union-attr,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import unpack
from engine.kernels.dependent import wait
from engine.kernels.hyper_kernels import load_up, store_group_of_rows
from engine.kernels.integer_product import load_segment
from engine.kernels.lanes import everywhere, stacked
from engine.kernels.norms import rms_factors
from engine.kernels.one_row import limb_products
from engine.kernels.scalar import sigmoid, silu
from engine.kernels.warp_groups import floats, groups_of_warp, pairs_of_warp

PART = tl.constexpr(528)
"""Numbers of a segment's part of a row: room for 512 outputs, and 16 of INJECT."""
SHARES_AT = tl.constexpr(512)


@triton.constexpr_function
def _levels(width):
    return ((width + 511) // 512 - 1).bit_length()


@triton.jit(do_not_specialize=["n", "quads"])
def low_of_row(X, NORM, DOWN, INJECT, PARTS, eps, n, quads, D: tl.constexpr, FORM: tl.constexpr,
               PDL: tl.constexpr):  # fmt: skip
    """Parts of the products of normed streams with DOWN (n outputs) and INJECT (16 at most):
    float32 [segments, 512 and 16] in PARTS, and behind them the factor of each stream's norm.

    D numbers of a stream are whole segments. Grid (segments, fours of tiles of DOWN and perhaps one
    more for INJECT). A warp takes 16 outputs and quantises a quad.
    """
    W: tl.constexpr = 4
    T: tl.constexpr = 32 * W
    thread = tl.arange(0, T)
    lane = thread % 32
    segment = tl.program_id(0)
    first = tl.program_id(1) * W
    injects = first * 16 >= n
    base = tl.where(injects, INJECT.to(tl.int64), DOWN.to(tl.int64))
    warp = thread // 32
    output = tl.where(injects, SHARES_AT, first * 16) + warp * 16
    there = output < tl.where(injects, PART, n)
    tile = tl.where(injects, 0, tl.minimum(output, n - 16) // 16)
    words = quads * FORM.quad + quads // 4 * (8 * FORM.tail)
    tiles = base.to(tl.pointer_type(tl.int32)) + tile.to(tl.int64) * words
    weights = load_segment(tiles, segment, quads, lane, FORM, True, True)
    norm = floats(NORM + segment * 512 + thread * 4, lane, 0)
    wait(PDL)
    own = floats(X + segment * 512 + thread * 4, lane, 0)
    stream = segment // (D // 512)
    factor = rms_factors(X + stream * D, D, _levels(D), eps, T)
    factors = PARTS + tl.num_programs(0) * PART
    tl.store(factors + stream + thread * 0, factor, mask=thread + first == 0)
    y = ()
    for e in tl.static_range(4):
        y = y + ((own[e] * factor) * norm[e],)
    b0, b1, s = groups_of_warp(y, lane)
    # The quad of each warp to all warps, with the scale of group lane % 4.
    r = tl.arange(0, 16)[:, None]
    at = r // 4 * T + r % 4 * 32 + tl.where(r < 8, lane[None, :], lane[None, :] % 4 * 8)
    x = everywhere(stacked((b0, b1, s, s), 4, T), at, 16, T)
    acc = (tl.zeros([T], tl.float32), tl.zeros([T], tl.float32))
    for q in tl.static_range(4):
        acc = limb_products(acc, weights[q], weights[4], x[q], x[4 + q], x[8 + q], lane, q, 4,
                            FORM)  # fmt: skip
    to = PARTS + segment * PART + output + lane // 4
    tl.store(to, acc[0], mask=there & (lane % 4 == 0))
    tl.store(to + 8, acc[1], mask=there & (lane % 4 == 0))


@triton.jit
def pair_of_parts(p, there, STEP: tl.constexpr, SEGMENTS: tl.constexpr, C: tl.constexpr):
    """silu(x / C) of two neighbours at p, x: sums of the parts of all segments, STEP numbers apart;
    0 where `there` is 0."""
    at = p.to(tl.pointer_type(tl.int32))
    parts = ()
    for i in tl.static_range(SEGMENTS):
        parts = parts + unpack.words(at, there, i * STEP, 2, True, True)
    # As in `norms.segment_dots`: all loads before the first sum.
    tl.debug_barrier()
    y0 = tl.zeros(there.shape, tl.float32)
    y1 = y0
    for i in tl.static_range(SEGMENTS):
        y0 = y0 + parts[2 * i].to(tl.float32, bitcast=True)
        y1 = y1 + parts[2 * i + 1].to(tl.float32, bitcast=True)
    count = tl.full(there.shape, C, tl.float32)
    return silu(tl.div_rn(y0, count)), silu(tl.div_rn(y1, count))


@triton.jit(do_not_specialize=["m"])
def up_of_row(PARTS, X, NORM, UP, VALUES, OUT, OUT_INFO, SHARES, m, D: tl.constexpr,
              C: tl.constexpr, GROUPS: tl.constexpr, FORM: tl.constexpr,
              PDL: tl.constexpr):  # fmt: skip
    """From the parts of `low_of_row`: SHARES of m streams, 2 sigmoid(x / C) of the products with
    INJECT, and the mean over the C streams (1, 2 or 4) of sigmoid(y) * the normed stream as an
    input of matrices. y: the products with UP, GROUPS groups of inputs, of silu(x / C) of the
    products with DOWN.

    Grid (D / 32, and perhaps one more for SHARES). A warp takes 16 outputs of a stream.
    """
    W: tl.constexpr = 2 * C
    T: tl.constexpr = 32 * W
    QUADS: tl.constexpr = (GROUPS + 3) // 4
    SEGMENTS: tl.constexpr = C * D // 512
    program = tl.program_id(0)
    thread = tl.arange(0, T)
    lane = thread % 32
    warp = thread // 32
    column = tl.minimum(program, D // 32 - 1) * 32 + warp % 2 * 16
    words = QUADS * FORM.quad + 8 * FORM.tail
    tile = warp // 2 * (D // 16) + column // 16
    at = UP.to(tl.pointer_type(tl.int32)) + tile.to(tl.int64) * words
    weights = load_up(at, lane, GROUPS, FORM, True)
    # Of four threads with the same sums one half goes on with output n, the other with n + 8.
    cell = warp // 2 * D + column + lane % 2 * 8 + lane // 4
    # A kernel before the last one wrote the streams.
    x = tl.load(X + cell)
    norm = tl.load(NORM + cell)
    wait(PDL)
    if program < D // 32:
        factor = tl.load(PARTS + SEGMENTS * PART + warp // 2)
        found = ()
        scales = ()
        for i in tl.static_range(256 // T):
            pair = i * T + thread
            y = pair_of_parts(PARTS + 2 * pair, (pair < GROUPS * 16).to(tl.int32), PART, SEGMENTS,
                              C)  # fmt: skip
            word, scale = pairs_of_warp(y[0], y[1], lane)
            found = found + (word,)
            scales = scales + (scale,)
        # To all warps: halves of the group that the thread's column is for, and the scale of group
        # lane % 4, of each quad.
        r = tl.arange(0, 16)[:, None]
        word = (r // 2 * 4 + lane[None, :] // 8) * 8 + r % 2 * 4 + lane[None, :] % 4
        word = word * 2 + lane[None, :] // 4 % 2
        own = tl.where(r < 8, word, 256 + (r % 4 * 4 + lane[None, :] % 4) * 16)
        z = everywhere(stacked(found + scales, 512 // T, T), own, 16, T)
        acc = (tl.zeros([T], tl.float32), tl.zeros([T], tl.float32))
        for q in tl.static_range(QUADS):
            acc = limb_products(acc, weights[q], weights[4], z[2 * q], z[2 * q + 1], z[8 + q],
                                lane, q, min(4, GROUPS - 4 * q), FORM)  # fmt: skip
        term = sigmoid(tl.where(lane % 2 == 0, acc[0], acc[1])) * ((x * factor) * norm)
        # Numbers of a stream: 64 threads, half of them alike.
        column = lane // 16 * 32 + lane % 8 * 4 + lane // 8 % 2
        terms = everywhere(term, tl.arange(0, C)[:, None] * 64 + column[None, :], C, T)
        # No zero stands before the first term, which may be -0.
        mean = terms[0]
        for c in tl.static_range(1, C):
            mean = mean + terms[c]
        mean = tl.div_rn(mean, tl.full([T], C, tl.float32))
        tl.store(VALUES + program * 32 + lane, mean, mask=warp == 0)
        store_group_of_rows(OUT, OUT_INFO, mean, warp, program, 0, warp == 0, W)
    else:
        o = tl.arange(0, 16)
        share = tl.zeros([16], tl.float32)
        for i in range(SEGMENTS):
            share = share + tl.load(PARTS + i * PART + SHARES_AT + o)
        share = 2.0 * sigmoid(tl.div_rn(share, tl.full([16], C, tl.float32)))
        tl.store(SHARES + o, share, mask=o < m)
