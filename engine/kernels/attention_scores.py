"""Kernels of attention up to the scores: norms, rotation, storing, and q.k of the selected cells.

`attention.py` says the order and the scratch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.dots import dots
from engine.kernels.kv_cache import store_vector
from engine.kernels.rotary import normed_head

BLOCK = 64
CELLS = tl.constexpr(BLOCK)
LOWEST = tl.constexpr(-(2**31))


@triton.jit
def ordered(x):
    """Integers that order like the floats x."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def disordered(i):
    """The floats that `ordered` made i of."""
    return (i ^ ((i >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit(
    do_not_specialize=["context", "budget"],
    do_not_specialize_on_alignment=["SELECTED", "SLOTS", "POSITIONS", "TOP", "CHOSEN"],
)
def prepare_kernel(
    Q, K_ROWS, V_ROWS, Q_NORM, K_NORM, TABLE, KEYS, KEY_SCALES, VALUES, VALUE_SCALES, SELECTED,
    SLOTS, POSITIONS, QUERIES, TOP, CHOSEN, eps, context, budget, H: tl.constexpr,
    KV: tl.constexpr, K: tl.constexpr, V: tl.constexpr, HALF: tl.constexpr, LEVELS: tl.constexpr,
    CODED: tl.constexpr, SPARSE: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    BUDGET: tl.constexpr,
):  # fmt: skip
    """Grid (H + 2 KV, rows): queries, then keys, then values of a row."""
    head = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    position = tl.load(POSITIONS + row)
    at = tl.arange(0, BK)
    if head < H:
        x = normed_head(
            Q + (row * H + head) * (2 * K), Q_NORM, TABLE, position, eps, K, HALF, LEVELS, BK
        )
        tl.store(QUERIES + (row * H + head) * K + at, x, mask=at < K)
        tl.store(TOP + row * H + head, LOWEST)
        if SPARSE and head == 0:
            i = tl.arange(0, BUDGET)
            block = tl.load(SELECTED + row * budget + i, mask=i < budget, other=-1)
            tl.store(CHOSEN + row, tl.sum((block >= 0).to(tl.int32), axis=0))
    else:
        cell = tl.load(SLOTS + row).to(tl.int64) * context + position
        if head < H + KV:
            vector = cell * KV + (head - H)
            x = normed_head(
                K_ROWS + (row * KV + (head - H)) * K, K_NORM, TABLE, position, eps, K, HALF, LEVELS,
                BK,
            )  # fmt: skip
            store_vector(x, KEYS + vector * K, KEY_SCALES + vector * ((K + 63) // 64), K, CODED, BK)
        else:
            kv = head - H - KV
            vector = cell * KV + kv
            dim = tl.arange(0, BV)
            x = tl.load(V_ROWS + (row * KV + kv) * V + dim, mask=dim < V, other=0.0)
            store_vector(
                x, VALUES + vector * V, VALUE_SCALES + vector * ((V + 63) // 64), V, CODED, BV
            )


@triton.jit
def cell_count(CHOSEN, row, position, RATIO: tl.constexpr, SPARSE: tl.constexpr):
    """(blocks in the row's list, selected cells)."""
    chosen = 0
    count = position + 1
    if SPARSE:
        chosen = tl.load(CHOSEN + row)
        count = chosen * RATIO + (position + 1) % RATIO
    return chosen, count


@triton.jit
def cells_at(SELECTED, i, live, chosen, position, RATIO: tl.constexpr, SPARSE: tl.constexpr):
    """The positions of the selected cells i. SELECTED: the row's list."""
    cell = i
    if SPARSE:
        listed = i < chosen * RATIO
        block = tl.load(SELECTED + i // RATIO, mask=live & listed, other=0)
        tail = (position + 1) // RATIO * RATIO - chosen * RATIO
        cell = tl.where(listed, block * RATIO + i % RATIO, tail + i)
    return cell


@triton.jit(
    do_not_specialize=["context", "budget", "room"],
    do_not_specialize_on_alignment=["SELECTED", "SLOTS", "POSITIONS", "TOP", "CHOSEN"],
)
def scores_kernel(
    QUERIES, KEYS, KEY_SCALES, SELECTED, SLOTS, POSITIONS, CHOSEN, SCORES, TOP, scale, context,
    budget, room, H: tl.constexpr, KV: tl.constexpr, K: tl.constexpr, RATIO: tl.constexpr,
    CODED: tl.constexpr, SPARSE: tl.constexpr, TURNS: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Grid (programs, KV * TURNS, rows): every program takes blocks of 64 cells in turn, for P of
    the query heads of one key head."""
    kv = tl.program_id(1) // TURNS
    first_head = tl.program_id(1) % TURNS * P
    row = tl.program_id(2).to(tl.int64)
    G: tl.constexpr = H // KV
    position = tl.load(POSITIONS + row)
    start = tl.load(SLOTS + row).to(tl.int64) * context
    chosen, count = cell_count(CHOSEN, row, position, RATIO, SPARSE)
    queries = QUERIES + (row * H + kv * G + first_head) * K
    scores = SCORES + (row * H + kv * G + first_head) * room
    for block in range(tl.program_id(0), (count + CELLS - 1) // CELLS, tl.num_programs(0)):
        i = block * CELLS + tl.arange(0, CELLS)
        live = i < count
        cell = cells_at(SELECTED + row * budget, i, live, chosen, position, RATIO, SPARSE)
        vector = (start + tl.minimum(cell, position)) * KV + kv
        products = dots(
            queries, KEYS, KEY_SCALES, vector, G - first_head, K, CODED,
            G % P == 0, P, CELLS,
        )  # fmt: skip
        for head in tl.static_range(P):
            if first_head + head < G:
                score = products[head] * scale
                tl.store(scores + head * room + i, score, mask=live)
                top = tl.max(tl.where(live, ordered(score), LOWEST), axis=0)
                tl.atomic_max(TOP + row * H + kv * G + first_head + head, top, sem="relaxed")
