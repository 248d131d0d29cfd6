"""Kernels of hyper-connections; `hyper_connections.py` says what they compute and launches them."""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,misc,union-attr,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import unpack
from engine.kernels.dependent import wait
from engine.kernels.inputs import integers, packed_info, store_groups, words_of
from engine.kernels.integer_product import (
    at_segment,
    input_of_blocks,
    limb_input,
    limb_segment_terms,
    limb_terms,
    load_segment,
    no_terms,
    segment_terms,
)
from engine.kernels.lanes import everywhere, stacked
from engine.kernels.norms import rms_factor
from engine.kernels.scalar import sigmoid, silu


@triton.jit
def store_group_of_rows(CODES, INFO, y, row, group, groups, live, W: tl.constexpr):
    """As `inputs.store_groups` a group of each of W rows, float32 [32 * W]: a warp has a row, and
    nothing leaves it. row, live: [32 * W]."""
    T: tl.constexpr = 32 * W
    lane = tl.arange(0, T) % 32
    q, low, s = integers(tl.reshape(y, [W, 32]), W)
    block = ((row // 8).to(tl.int64) * groups + group) * 8
    cell = block + row % 8
    info = tl.reshape(tl.broadcast_to(packed_info(q, s, W)[:, None], [W, 32]), [T])
    tl.store(INFO + cell, info, mask=live & (lane == 0))
    at = CODES.to(tl.pointer_type(tl.int32)) + (cell + block) * 8 + (lane // 4 % 4 * 2 + lane // 16)
    for limb in tl.static_range(2):
        words = words_of(low if limb else q, W)
        words = tl.reshape(tl.broadcast_to(words[:, :, None], [W, 8, 4]), [T])
        tl.store(at + 64 * limb, words, mask=live & (lane % 4 == 0))


@triton.jit(do_not_specialize=["groups", "counters"])
def normed_streams(
    X, NORM, FACTORS, CODES, INFO, COUNTERS, eps, groups, counters, D: tl.constexpr,
    LEVELS: tl.constexpr, M: tl.constexpr, PARTS: tl.constexpr, POWER: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """The norm of each stream, D numbers of 2**LEVELS segments at most, as an input of matrices
    without its values, and its factor: FACTORS, [rows, streams]. Grid (rows, streams, runs of PARTS
    parts of M groups). Zeros in the `counters` numbers (at most POWER) of each block of eight rows
    in COUNTERS."""
    row = tl.program_id(0)
    stream = tl.program_id(1)
    first = tl.program_id(2) * (PARTS * M) + tl.arange(0, M)
    inside = tl.arange(0, 32)[None, :]
    weight = tl.load(NORM + stream * D + first[:, None] * 32 + inside,
                     mask=first[:, None] * 32 < D, other=0.0)  # fmt: skip
    wait(PDL)
    run = row.to(tl.int64) * tl.num_programs(1) + stream
    # A number: as a tensor its layout, the same in all threads, would become that of all others.
    factor = tl.max(rms_factor(X + run * D, D, LEVELS, eps), axis=0)
    tl.store(FACTORS + run, factor)
    for part in tl.static_range(PARTS):
        group = first + part * M
        at = group[:, None] * 32 + inside
        if part > 0:
            weight = tl.load(NORM + stream * D + at, mask=at < D, other=0.0)
        x = tl.load(X + run * D + at, mask=at < D, other=0.0)
        x = (x * factor) * weight
        store_groups(CODES, INFO, x, row, stream * (D // 32) + group, groups, group < D // 32, M)
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
        # A warp has all outputs of a row, and of the fourth one behind it.
        o = lane
        for e in range(tl.minimum((rows - block * 8 + 3) // 4, 2)):
            r = warp + 4 * e
            part = first + (o // 16 * 128 + (o % 16 // 8 * 2 + r % 2) * 32 + (o % 8 * 4 + r // 2))
            total = tl.zeros([32 * W], tl.float32)
            for s in range(0, segments, 20):
                parts = ()
                left = thread * 0 + (segments - s)
                for k in tl.static_range(20):
                    # Whether it exists is one number: the loads share their address.
                    parts = parts + (tl.load(part + k * 256, mask=left > k, other=0.0),)
                part += 20 * 256
                tl.debug_barrier()  # as in `norms.segment_dots`
                for k in tl.static_range(20):
                    total = total + parts[k]
            y = tl.div_rn(total, tl.full([32 * W], DIVISOR, tl.float32))
            row = block * 8 + r
            if injects:
                tl.store(SHARES + row * m + o, 2.0 * sigmoid(y), mask=(row < rows) & (o < m))
            else:
                store_group_of_rows(LOW, LOW_INFO, silu(y), row, group, stored, row < rows, W)


@triton.jit
def load_groups(p, lane, INDEX: tl.constexpr, GROUPS: tl.constexpr, FORM: tl.constexpr,
                ASM: tl.constexpr):  # fmt: skip
    """As `unpack.quad`, of two limbs, without the words behind GROUPS groups of the quad."""
    found = ()
    for i in tl.static_range(8):
        if i % 4 < GROUPS:
            found = found + unpack.words(p + lane * 4, lane, INDEX * FORM.quad + 128 * i, 4, False,
                                         ASM)  # fmt: skip
        else:
            found = found + (lane, lane, lane, lane)
    return found


@triton.jit
def load_up(at, lane, GROUPS: tl.constexpr, FORM: tl.constexpr, ASM: tl.constexpr):
    """A warp's weights as `load_segment` gives them: 16 outputs of one segment of GROUPS groups."""
    QUADS: tl.constexpr = (GROUPS + 3) // 4
    weights = ()
    for q in tl.static_range(4):
        if q >= QUADS:
            weights = weights + (weights[0],)
        elif FORM.bits == 16:
            weights = weights + (load_groups(at, lane, q, min(4, GROUPS - 4 * q), FORM, ASM),)
        else:
            weights = weights + (unpack.quad(at, lane, lane, q, FORM, False, ASM),)
    tail = at + (QUADS * FORM.quad + lane // 4 * FORM.tail)
    return weights + (unpack.words(tail, lane, 0, FORM.tail, False, ASM),)


@triton.jit
def _limb_inputs(x, lane, q: tl.constexpr, GROUPS: tl.constexpr, ASM: tl.constexpr):
    found = ()
    for j in tl.static_range(GROUPS):
        found = found + limb_input(x, lane, 4 * q + j, 1, 2, True, ASM)
    return found


@triton.jit
def _limb_products(weights, x, groups, lane, GROUPS: tl.constexpr, FORM: tl.constexpr,
                   W: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """As `limb_segment_terms`, of GROUPS groups, which `groups` says again."""
    acc = no_terms(1, 2, W)
    given = _limb_inputs(x, lane, 0, min(4, GROUPS), ASM)
    for q in tl.static_range((GROUPS + 3) // 4):
        ahead = given
        if 4 * (q + 1) < GROUPS:
            ahead = _limb_inputs(x, lane, q + 1, min(4, GROUPS - 4 * (q + 1)), ASM)
            tl.debug_barrier()
        # Barrier and branch keep the compiler from moving every load down to its use.
        if groups > 4 * q:
            for j in tl.static_range(min(4, GROUPS - 4 * q)):
                acc = limb_terms(acc, weights[q], weights[4], given, True, 4 * q + j, 8 * j, FORM,
                                 1, 2, True, W, ASM)  # fmt: skip
        given = ahead
    return acc


@triton.jit(do_not_specialize=["rows", "groups", "step", "stored", "blocks"])
def up_mean(
    CODES, INFO, UP, X, NORM, FACTORS, VALUES, OUT, OUT_INFO, rows, groups, step, stored, blocks,
    D: tl.constexpr, LEVELS: tl.constexpr, GROUPS: tl.constexpr, FORM: tl.constexpr,
    ASM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """mean over the C = 2**LEVELS streams of sigmoid(y) * (x * factor) * norm as an input of
    matrices, y: an input's products with UP, of one segment of GROUPS groups (`groups` says it
    again). FACTORS: [rows, C]. Grid (D / 32, shares of `blocks` blocks of 8 rows).

    A warp takes 16 outputs of a stream, and keeps their weights for all its rows.
    """
    C: tl.constexpr = 1 << LEVELS
    W: tl.constexpr = 2 * C
    T: tl.constexpr = 32 * W
    thread = tl.arange(0, T)
    lane = thread % 32
    warp = thread // 32
    tile = warp // 2 * (D // 16) + tl.program_id(0) * 2 + warp % 2
    words = (GROUPS + 3) // 4 * FORM.quad + 8 * FORM.tail
    at = UP.to(tl.pointer_type(tl.int32)) + tile.to(tl.int64) * words
    weights = load_up(at, lane, GROUPS, FORM, ASM)
    # What a thread has of a block: outputs n and n + 8 of rows 2q and 2q + 1.
    column = tl.program_id(0) * 32 + warp % 2 * 16 + lane // 4
    stream = warp // 2
    norm = (tl.load(NORM + stream * D + column), tl.load(NORM + stream * D + column + 8))
    wait(PDL)
    begin = tl.program_id(1) * blocks
    every = (rows + 7) // 8
    for block in range(begin, tl.minimum(begin + blocks, every)):
        xn = ()
        for o in tl.static_range(2):
            for odd in tl.static_range(2):
                near = tl.minimum(block * 8 + lane % 4 * 2 + odd, rows - 1).to(tl.int64)
                value = tl.load(X + (near * C + stream) * D + (column + 8 * o))
                xn = xn + ((value * tl.load(FACTORS + near * C + stream)) * norm[o],)
        x = input_of_blocks(CODES, INFO, block, step, every, lane, 1)
        if FORM.bits == 16:
            acc = _limb_products(weights, x, groups, lane, GROUPS, FORM, W, ASM)
        else:
            acc = segment_terms(weights, x, groups, FORM, 1, 2, True, False, True, W, ASM)
        terms = ()
        for k in tl.static_range(4):
            terms = terms + (sigmoid(acc[k]) * xn[k],)
        # A warp has all columns of a row then, or of several rows, with the terms of each stream.
        m = tl.arange(0, 4)[:, None]
        row = warp[None, :] + m // C * W
        own = (lane[None, :] // 8 % 2 * 2 + row % 2) * T + lane[None, :] % 8 * 4 + row // 2
        own = own + (m % C * 2 + lane[None, :] // 16) * 32
        terms = everywhere(stacked(terms, 4, T), own, 4, T)
        for e in tl.static_range(4 // C):
            # No zero stands before the first term, which may be -0.
            mean = terms[e * C]
            for c in tl.static_range(1, C):
                mean = mean + terms[e * C + c]
            mean = tl.div_rn(mean, tl.full([T], C, tl.float32))
            row = block * 8 + e * W + warp
            tl.store(VALUES + row.to(tl.int64) * D + tl.program_id(0) * 32 + lane, mean,
                     mask=row < rows)  # fmt: skip
            store_group_of_rows(OUT, OUT_INFO, mean, row, tl.program_id(0), stored, row < rows, W)


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
