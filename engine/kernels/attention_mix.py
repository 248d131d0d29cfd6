"""Kernels of attention from the scores on: p, the sums over cells, the division, the gate.

`attention.py` says the order and the scratch. A thread has PIECES times D neighbouring dims of the
values and walks the cells of a block for P query heads of one key head: T threads have all dims, so
a program alone owns the scores of its heads and turns them into p where they lie.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.attention_scores import CELLS, cell_count, cells_at, disordered
from engine.kernels.dependent import wait
from engine.kernels.dots import zeros
from engine.kernels.inputs import store_groups
from engine.kernels.scalar import exp, sigmoid


@triton.jit
def weigh(
    SCORES, top, first, count, G: tl.constexpr, P: tl.constexpr, PADDED: tl.constexpr
):  # fmt: skip
    """Turns the scores of 64 cells into p, in place; 0 for cells that are not there. top: the
    heads' maxima, [PADDED]."""
    head = tl.arange(0, PADDED)[None, :]
    i = tl.arange(0, CELLS)[:, None]
    score = tl.load(SCORES + i * G + head, mask=(first + i < count) & (head < P), other=0.0)
    p = tl.where(first + i < count, exp(score - top[None, :]), 0.0)
    tl.store(SCORES + i * G + head, p, mask=head < P)


@triton.jit
def weights_at(AT, P: tl.constexpr, W: tl.constexpr, T: tl.constexpr):
    """P numbers in memory for every thread, as tensors [T, 1]; loads of W at once. AT: pointers
    [T, W] to the first of them."""
    found = ()
    for group in tl.static_range(P // W):
        some = tl.load(AT + group * W)
        if W == 4:
            even, odd = tl.split(tl.reshape(some, [T, 2, 2]))
            a, c = tl.split(even)
            b, d = tl.split(odd)
            found = found + (a[:, None], b[:, None], c[:, None], d[:, None])
        elif W == 2:
            a, b = tl.split(some)
            found = found + (a[:, None], b[:, None])
        else:
            found = found + (some,)
    return found


@triton.jit
def values_at(
    VALUES, VALUE_SCALES, SELECTED, first, count, chosen, position, KV: tl.constexpr,
    V: tl.constexpr, RATIO: tl.constexpr, CODED: tl.constexpr, SPARSE: tl.constexpr,
    T: tl.constexpr, D: tl.constexpr, PIECES: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The stored values of STEP cells from `first` on, a tuple of [T, D], PIECES for each, and
    behind them their scales, [T, 1]; of cells from `count` on anything.

    VALUES, VALUE_SCALES: pointers [T, D] and [T, 1] to those of the slot's first cell. Cells that
    lie next to each other in memory take one address, and constants that the loads take in.
    """
    GROUPS: tl.constexpr = (V + 63) // 64
    RUN: tl.constexpr = RATIO if SPARSE and STEP % RATIO == 0 else (1 if SPARSE else STEP)
    thread = tl.arange(0, T)[:, None]
    dim = thread * D + tl.arange(0, D)[None, :]
    found = ()
    scales = ()
    for u in tl.static_range(STEP):
        if u % RUN == 0:
            cell = tl.minimum(first + u, count - 1)
            if SPARSE:
                cell = cells_at(SELECTED, cell, chosen, position, RATIO, SPARSE)
            value_at = VALUES + cell.to(tl.int64) * (KV * V)
            scale_at = VALUE_SCALES + cell.to(tl.int64) * (KV * GROUPS)
        for piece in tl.static_range(PIECES):
            at = value_at + (u % RUN * (KV * V) + piece * T * D)
            if V == PIECES * T * D:
                found = found + (tl.load(at),)
            else:
                found = found + (tl.load(at, mask=piece * T * D + dim < V, other=0),)
            if CODED:
                at = scale_at + (u % RUN * (KV * GROUPS) + piece * T * D // 64)
                if V == PIECES * T * D:
                    scales = scales + (tl.load(at),)
                else:
                    inside = piece * T * D + thread * D < V
                    scales = scales + (tl.load(at, mask=inside, other=0.0),)
    return found + scales


@triton.jit
def summed(
    parts, values, WEIGHTS, missing, G: tl.constexpr, CODED: tl.constexpr, FULL: tl.constexpr,
    P: tl.constexpr, W: tl.constexpr, T: tl.constexpr, PIECES: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """P * PIECES sums [T, D] and the p * v of STEP cells in turn. WEIGHTS: pointers [T, W] to the
    first p; FULL: no cell is missing, else those from `missing` on are."""
    for u in tl.static_range(STEP):
        decoded = ()
        for piece in tl.static_range(PIECES):
            v = values[u * PIECES + piece].to(tl.float32)
            if CODED:
                scale = values[(STEP + u) * PIECES + piece].to(tl.float32)
                if not FULL:
                    scale = tl.where(u < missing, scale, 0.0)
                v = v * scale
            elif not FULL:
                v = tl.where(u < missing, v, 0.0)
            decoded = decoded + (v,)
        weights = weights_at(WEIGHTS + u * G, P, W, T)
        after = ()
        for i in tl.static_range(P * PIECES):
            after = after + (parts[i] + weights[i // PIECES] * decoded[i % PIECES],)
        parts = after
    return parts


@triton.jit
def block_sums(
    stored, VALUES, VALUE_SCALES, SELECTED, WEIGHTS, first, count, chosen, position,
    KV: tl.constexpr, V: tl.constexpr, G: tl.constexpr, RATIO: tl.constexpr, CODED: tl.constexpr,
    SPARSE: tl.constexpr, P: tl.constexpr, W: tl.constexpr, T: tl.constexpr, D: tl.constexpr,
    PIECES: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """P * PIECES sums of p * v, [T, D], of the 64 cells from `first` on; behind them what
    `values_at` gives of the STEP cells after these. stored: of the first STEP ones. Cells are read
    a step before they are needed."""
    sums = zeros(P * PIECES, T, D)
    cells = tl.minimum(count - first, CELLS)
    whole_steps = cells // STEP * STEP
    for step in range(first, first + whole_steps, STEP):
        following = values_at(
            VALUES, VALUE_SCALES, SELECTED, step + STEP, count, chosen, position, KV, V, RATIO,
            CODED, SPARSE, T, D, PIECES, STEP,
        )  # fmt: skip
        sums = summed(sums, stored, WEIGHTS + step * G, STEP, G, CODED, True, P, W, T, PIECES, STEP)
        stored = following
    if whole_steps < cells:
        step = first + whole_steps
        sums = summed(
            sums, stored, WEIGHTS + step * G, count - step, G, CODED, False, P, W, T, PIECES, STEP
        )
    return sums + stored


@triton.jit
def weight_sums(WEIGHTS, G: tl.constexpr, P: tl.constexpr, PADDED: tl.constexpr):
    """The sums of a block's p, [PADDED]. Also brings them into the cache nearest to the threads."""
    head = tl.arange(0, PADDED)
    total = tl.zeros([PADDED], tl.float32)
    for start in range(0, CELLS, 32):
        found = ()
        for u in tl.static_range(32):
            found = found + (tl.load(WEIGHTS + (start + u) * G + head, mask=head < P, other=0.0),)
        for u in tl.static_range(32):
            total = total + found[u]
    return total


@triton.jit(
    do_not_specialize=["context", "budget", "room"],
    do_not_specialize_on_alignment=["SELECTED", "SLOTS", "POSITIONS", "TOP"],
)
def mix_kernel(
    VALUES, VALUE_SCALES, SELECTED, SLOTS, POSITIONS, SCORES, TOP, PARTS, SUMS, context, budget,
    room, H: tl.constexpr, KV: tl.constexpr, V: tl.constexpr, RATIO: tl.constexpr,
    CODED: tl.constexpr, SPARSE: tl.constexpr, P: tl.constexpr, PADDED: tl.constexpr,
    W: tl.constexpr, T: tl.constexpr, D: tl.constexpr, PIECES: tl.constexpr, STEP: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """For few rows: the sums of blocks. Grid (programs, H / P, rows): a program takes blocks in
    turn."""
    G: tl.constexpr = H // KV
    first_head = tl.program_id(1) * P
    kv = first_head // G
    row = tl.program_id(2).to(tl.int64)
    dim = tl.arange(0, T)[:, None] * D + tl.arange(0, D)[None, :]
    head = tl.arange(0, PADDED)
    position = tl.load(POSITIONS + row)
    start = tl.load(SLOTS + row).to(tl.int64) * context
    chosen, count = cell_count(position, budget, RATIO, SPARSE)
    # So that the compiler sees where 16 bytes begin.
    scores = SCORES + (row * KV + kv) * (room // CELLS) * (CELLS * G)
    scores += tl.program_id(1) % (G // P) * P
    values = VALUES + (start * KV + kv) * V + dim
    thread = tl.arange(0, T)[:, None]
    scales = VALUE_SCALES + (start * KV + kv) * ((V + 63) // 64) + thread * D // 64
    weights_from = scores + thread * 0 + tl.arange(0, W)[None, :]
    selected = SELECTED + row * budget
    wait(PDL)
    top = disordered(tl.load(TOP + row * H + first_head + head, mask=head < P, other=0))
    for block in range(tl.program_id(0), (count + CELLS - 1) // CELLS, tl.num_programs(0)):
        first = block * CELLS
        stored = values_at(
            values, scales, selected, first, count, chosen, position, KV, V, RATIO, CODED, SPARSE,
            T, D, PIECES, STEP,
        )  # fmt: skip
        weigh(scores + first * G, top, first, count, G, P, PADDED)
        tl.debug_barrier()
        total = weight_sums(scores + first * G, G, P, PADDED)
        sums = block_sums(
            stored, values, scales, selected, weights_from, first, count, chosen, position, KV, V,
            G, RATIO, CODED, SPARSE, P, W, T, D, PIECES, STEP,
        )  # fmt: skip
        at = (row * (room // CELLS) + block) * H + first_head
        for i in tl.static_range(P * PIECES):
            place = dim + i % PIECES * T * D
            tl.store(PARTS + (at + i // PIECES) * V + place, sums[i], mask=place < V)
        tl.store(SUMS + at + head, total, mask=head < P)


@triton.jit
def store_gated(
    OUT, CODES, INFO, out, row, first, live, width, groups, V: tl.constexpr, B: tl.constexpr
):  # fmt: skip
    """Stores `live` values of a row's output from `first` on, float32 [B / 32, 32], and their codes
    where they are whole groups."""
    at = tl.arange(0, B // 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(OUT + row * width + first + at, out, mask=at < live)
    if V % 32 == 0:
        group = tl.arange(0, B // 32)
        store_groups(CODES, INFO, out, row, first // 32 + group, groups, group * 32 < live, B // 32)


@triton.jit(
    do_not_specialize=["first_row", "context", "budget", "room", "groups"],
    do_not_specialize_on_alignment=["SELECTED", "SLOTS", "POSITIONS", "TOP"],
)
def whole_kernel(
    VALUES, VALUE_SCALES, SELECTED, SLOTS, POSITIONS, SCORES, TOP, Q, OUT, CODES, INFO, first_row,
    context, budget, room, groups, H: tl.constexpr, KV: tl.constexpr, V: tl.constexpr,
    RATIO: tl.constexpr, CODED: tl.constexpr, SPARSE: tl.constexpr, P: tl.constexpr,
    PADDED: tl.constexpr, W: tl.constexpr, T: tl.constexpr, D: tl.constexpr, PIECES: tl.constexpr,
    STEP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """For many rows, as `mix_kernel` and `combine_kernel` together: a program has all blocks of its
    row and adds each to its place in OUT, where the registers' next use of it is 64 cells away.
    Grid (H / P, rows)."""
    G: tl.constexpr = H // KV
    first_head = tl.program_id(0) * P
    kv = first_head // G
    # The last rows have the most cells: their programs begin first.
    row = (tl.num_programs(1) - 1 - tl.program_id(1)).to(tl.int64)
    dim = tl.arange(0, T)[:, None] * D + tl.arange(0, D)[None, :]
    head = tl.arange(0, PADDED)
    position = tl.load(POSITIONS + row)
    start = tl.load(SLOTS + row).to(tl.int64) * context
    chosen, count = cell_count(position, budget, RATIO, SPARSE)
    # So that the compiler sees where 16 bytes begin.
    scores = SCORES + (row * KV + kv) * (room // CELLS) * (CELLS * G)
    scores += tl.program_id(0) % (G // P) * P
    values = VALUES + (start * KV + kv) * V + dim
    thread = tl.arange(0, T)[:, None]
    scales = VALUE_SCALES + (start * KV + kv) * ((V + 63) // 64) + thread * D // 64
    weights_from = scores + thread * 0 + tl.arange(0, W)[None, :]
    selected = SELECTED + row * budget
    wait(PDL)
    top = disordered(tl.load(TOP + row * H + first_head + head, mask=head < P, other=0))
    place = first_row + row
    at = (place * H + first_head) * V
    total = tl.zeros([PADDED], tl.float32)
    # Heads whose sums are read at once.
    BATCH: tl.constexpr = 3 if P % 3 == 0 else (2 if P % 2 == 0 else 1)
    stored = values_at(
        values, scales, selected, 0, count, chosen, position, KV, V, RATIO, CODED, SPARSE, T, D,
        PIECES, STEP,
    )  # fmt: skip
    for first in range(0, count, CELLS):
        weigh(scores + first * G, top, first, count, G, P, PADDED)
        tl.debug_barrier()
        total = total + weight_sums(scores + first * G, G, P, PADDED)
        sums = block_sums(
            stored, values, scales, selected, weights_from, first, count, chosen, position, KV, V,
            G, RATIO, CODED, SPARSE, P, W, T, D, PIECES, STEP,
        )  # fmt: skip
        stored = ()
        for u in tl.static_range((2 * STEP if CODED else STEP) * PIECES):
            stored = stored + (sums[P * PIECES + u],)
        known = tl.where(first > 0, V, 0)
        for h in tl.static_range(0, P, BATCH):
            before = ()
            for i in tl.static_range(h * PIECES, (h + BATCH) * PIECES):
                dims = dim + i % PIECES * T * D
                sum_at = OUT + at + i // PIECES * V + dims
                before = before + (tl.load(sum_at, mask=dims < known, other=0.0),)
            for i in tl.static_range(h * PIECES, (h + BATCH) * PIECES):
                dims = dim + i % PIECES * T * D
                sum_at = OUT + at + i // PIECES * V + dims
                tl.store(sum_at, before[i - h * PIECES] + sums[i], mask=dims < V)
    tl.debug_barrier()
    tl.store(scores + head, total, mask=head < P)
    tl.debug_barrier()
    column = tl.arange(0, PIECES * T * D // 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    for h in range(P):
        live = column < V
        below = tl.load(scores + h + column * 0)
        sums_of_head = tl.load(OUT + at + h * V + column, mask=live, other=0.0)
        gate = tl.load(Q + 2 * (at + h * V) + V + column, mask=live, other=0.0)
        gated = tl.div_rn(sums_of_head, below) * sigmoid(gate)
        store_gated(
            OUT, CODES, INFO, gated, place, (first_head + h) * V, V, H * V, groups, V,
            PIECES * T * D,
        )  # fmt: skip


@triton.jit(
    do_not_specialize=["first_row", "budget", "room", "groups"],
    do_not_specialize_on_alignment=["POSITIONS"],
)
def combine_kernel(
    Q, POSITIONS, PARTS, SUMS, OUT, CODES, INFO, first_row, budget, room, groups, H: tl.constexpr,
    V: tl.constexpr, RATIO: tl.constexpr, SPARSE: tl.constexpr, B: tl.constexpr,
    UNROLL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The sums of the blocks in ascending order, the division, the gate. Grid (V / B, H, rows)."""
    first = tl.program_id(0) * B
    head = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    dim = first + tl.arange(0, B // 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    live = dim < V
    _, count = cell_count(tl.load(POSITIONS + row), budget, RATIO, SPARSE)
    blocks = (count + CELLS - 1) // CELLS
    base = row * (room // CELLS) * H + head
    place = first_row + row
    wait(PDL)
    gate = tl.load(Q + (place * H + head) * (2 * V) + V + dim, mask=live, other=0.0)
    parts = tl.zeros([B // 32, 32], tl.float32)
    total = tl.zeros([B // 32, 32], tl.float32)
    for start in range(0, blocks, UNROLL):
        loaded = ()
        loaded_sums = ()
        for u in tl.static_range(UNROLL):
            at = base + (start + u) * H
            inside = (start + u < blocks).to(tl.int32)
            loaded = loaded + (tl.load(PARTS + at * V + dim, mask=dim < V * inside, other=0.0),)
            one = tl.load(SUMS + at + dim * 0, mask=dim < V * inside, other=0.0)
            loaded_sums = loaded_sums + (one,)
        for u in tl.static_range(UNROLL):
            parts = parts + loaded[u]
            total = total + loaded_sums[u]
    out = tl.div_rn(parts, tl.where(live, total, 1.0)) * sigmoid(gate)
    live_here = tl.minimum(V - first, B)
    store_gated(OUT, CODES, INFO, out, place, head * V + first, live_here, H * V, groups, V, B)
