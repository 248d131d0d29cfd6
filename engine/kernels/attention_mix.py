"""Kernels of attention from the scores on: p, the sums over cells, the division, the gate.

`attention.py` says the order and the scratch.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.attention_scores import CELLS, cell_count, cells_at, disordered
from engine.kernels.dots import add, zeros
from engine.kernels.kv_cache import read_values
from engine.kernels.scalar import exp, sigmoid


@triton.jit
def block_sums(
    VALUES, VALUE_SCALES, SELECTED, SCORES, WEIGHTS, top, start, first, count, chosen, position, kv,
    dim, room, KV: tl.constexpr, V: tl.constexpr, G: tl.constexpr, RATIO: tl.constexpr,
    CODED: tl.constexpr, SPARSE: tl.constexpr, PADDED: tl.constexpr, B: tl.constexpr,
    STEP: tl.constexpr,
):  # fmt: skip
    """Of the 64 cells from `first` on: G sums of p * v, [B] each, and the sums of p, [PADDED].

    SELECTED: the row's list; SCORES: those of the key head; WEIGHTS: room for 64 * G numbers. p is
    written and read again one number at a time: such a number need not move between threads.
    """
    head = tl.arange(0, PADDED)
    i = tl.arange(0, CELLS)[:, None]
    live = (first + i < count) & (head < G)[None, :]
    score = tl.load(SCORES + head[None, :] * room + first + i, mask=live, other=0.0)
    tl.store(WEIGHTS + i * G + head[None, :], exp(score - top[None, :]), mask=live)
    tl.debug_barrier()
    parts = zeros(G, B)
    total = tl.zeros([PADDED], tl.float32)
    for step in range(0, tl.minimum(count - first, CELLS), STEP):
        for u in tl.static_range(STEP):
            inside = first + step + u < count
            cell = cells_at(SELECTED, first + step + u, inside, chosen, position, RATIO, SPARSE)
            width = inside.to(tl.int32)
            vector = (start + cell) * KV + kv
            v = read_values(VALUES, VALUE_SCALES, vector, dim, dim < width * V, V, CODED)
            at = WEIGHTS + (step + u) * G
            total = total + tl.load(at + head, mask=head < width * G, other=0.0)
            after = ()
            for h in tl.static_range(G):
                weight = tl.load(at + h, mask=inside, other=0.0)
                after = after + (parts[h] + weight * v,)
            parts = after
    return parts + (total,)


@triton.jit(
    do_not_specialize=["context", "budget", "room"],
    do_not_specialize_on_alignment=["SELECTED", "SLOTS", "POSITIONS", "TOP", "CHOSEN"],
)
def mix_kernel(
    VALUES, VALUE_SCALES, SELECTED, SLOTS, POSITIONS, CHOSEN, SCORES, TOP, WEIGHTS, PARTS, SUMS,
    context, budget, room, H: tl.constexpr, KV: tl.constexpr, V: tl.constexpr,
    RATIO: tl.constexpr, CODED: tl.constexpr, SPARSE: tl.constexpr, PADDED: tl.constexpr,
    B: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """For few rows: the sums of blocks. Grid (programs, KV * V / B, rows): a program takes blocks
    in turn and has B dims of the values, for all query heads of a key head."""
    SHARES: tl.constexpr = (V + B - 1) // B
    kv = tl.program_id(1) // SHARES
    share = tl.program_id(1) % SHARES
    row = tl.program_id(2).to(tl.int64)
    G: tl.constexpr = H // KV
    dim = share * B + tl.arange(0, B)
    head = tl.arange(0, PADDED)
    position = tl.load(POSITIONS + row)
    start = tl.load(SLOTS + row).to(tl.int64) * context
    chosen, count = cell_count(CHOSEN, row, position, RATIO, SPARSE)
    top = disordered(tl.load(TOP + row * H + kv * G + head, mask=head < G, other=0))
    for block in range(tl.program_id(0), (count + CELLS - 1) // CELLS, tl.num_programs(0)):
        first = block * CELLS
        sums = block_sums(
            VALUES, VALUE_SCALES, SELECTED + row * budget, SCORES + (row * H + kv * G) * room,
            WEIGHTS + (((row * KV + kv) * SHARES + share) * room + first) * G, top, start, first,
            count, chosen, position, kv, dim, room, KV, V, G, RATIO, CODED, SPARSE, PADDED, B, STEP,
        )  # fmt: skip
        at = (row * (room // CELLS) + block) * H + kv * G
        for h in tl.static_range(G):
            tl.store(PARTS + (at + h) * V + dim, sums[h], mask=dim < V)
        if share == 0:
            tl.store(SUMS + at + head, sums[G], mask=head < G)


@triton.jit(
    do_not_specialize=["context", "budget", "room"],
    do_not_specialize_on_alignment=["SELECTED", "SLOTS", "POSITIONS", "TOP", "CHOSEN"],
)
def whole_kernel(
    VALUES, VALUE_SCALES, SELECTED, SLOTS, POSITIONS, CHOSEN, SCORES, TOP, WEIGHTS, Q, OUT, context,
    budget, room, H: tl.constexpr, KV: tl.constexpr, V: tl.constexpr, RATIO: tl.constexpr,
    CODED: tl.constexpr, SPARSE: tl.constexpr, PADDED: tl.constexpr, B: tl.constexpr,
    STEP: tl.constexpr,
):  # fmt: skip
    """For many rows, as `mix_kernel` and `combine_kernel` together: a program has all blocks of its
    row, so no sum of a block goes to memory. Grid (KV * V / B, rows)."""
    SHARES: tl.constexpr = (V + B - 1) // B
    kv = tl.program_id(0) // SHARES
    share = tl.program_id(0) % SHARES
    row = tl.program_id(1).to(tl.int64)
    G: tl.constexpr = H // KV
    dim = share * B + tl.arange(0, B)
    head = tl.arange(0, PADDED)
    position = tl.load(POSITIONS + row)
    start = tl.load(SLOTS + row).to(tl.int64) * context
    chosen, count = cell_count(CHOSEN, row, position, RATIO, SPARSE)
    top = disordered(tl.load(TOP + row * H + kv * G + head, mask=head < G, other=0))
    weights = WEIGHTS + ((row * KV + kv) * SHARES + share) * (CELLS * G)
    parts = zeros(G, B)
    total = tl.zeros([PADDED], tl.float32)
    for block in range((count + CELLS - 1) // CELLS):
        tl.debug_barrier()  # the p of this block come where those of the last one lie
        sums = block_sums(
            VALUES, VALUE_SCALES, SELECTED + row * budget, SCORES + (row * H + kv * G) * room,
            weights, top, start, block * CELLS, count, chosen, position, kv, dim, room, KV, V, G,
            RATIO, CODED, SPARSE, PADDED, B, STEP,
        )  # fmt: skip
        parts = add(parts, sums, G)
        total = total + sums[G]
    tl.debug_barrier()
    tl.store(weights + head, total, mask=head < G)
    tl.debug_barrier()
    for h in tl.static_range(G):
        at = row * H + kv * G + h
        below = tl.load(weights + h + dim * 0)
        gate = tl.load(Q + at * (2 * V) + V + dim, mask=dim < V, other=0.0)
        out = tl.div_rn(parts[h], below) * sigmoid(gate)
        tl.store(OUT + at * V + dim, out, mask=dim < V)


@triton.jit(
    do_not_specialize=["room"],
    do_not_specialize_on_alignment=["POSITIONS", "CHOSEN"],
)
def combine_kernel(
    Q, POSITIONS, CHOSEN, PARTS, SUMS, OUT, room, H: tl.constexpr, V: tl.constexpr,
    RATIO: tl.constexpr, SPARSE: tl.constexpr, BV: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """The sums of the blocks in ascending order, the division, the gate. Grid (H, rows)."""
    head = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    dim = tl.arange(0, BV)
    live = dim < V
    _, count = cell_count(CHOSEN, row, tl.load(POSITIONS + row), RATIO, SPARSE)
    blocks = (count + CELLS - 1) // CELLS
    base = row * (room // CELLS) * H + head
    parts = tl.zeros([BV], tl.float32)
    total = tl.zeros([1], tl.float32)
    one = tl.arange(0, 1)
    for first in range(0, blocks, UNROLL):
        for u in tl.static_range(UNROLL):
            block = first + u
            at = base + block * H
            width = (block < blocks).to(tl.int32) * V
            parts = parts + tl.load(PARTS + at * V + dim, mask=dim < width, other=0.0)
            total = total + tl.load(SUMS + at + one, mask=one + block < blocks, other=0.0)
    below, _ = tl.broadcast(total, parts)
    gate = tl.load(Q + (row * H + head) * (2 * V) + V + dim, mask=live, other=0.0)
    out = tl.div_rn(parts, below) * sigmoid(gate)
    tl.store(OUT + (row * H + head) * V + dim, out, mask=live)
