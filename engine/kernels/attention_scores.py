"""Kernels of attention up to the scores: norms, rotation, storing, and q.k of the selected cells.

`attention.py` says the order and the scratch.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.dependent import wait
from engine.kernels.dots import decoded, finished, lanes_at, products, scales_at, zeros
from engine.kernels.kv_cache import store_lanes
from engine.kernels.rotary import head_constants, normed

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


@triton.jit
def prepare_heads(
    part, row, Q, K_ROWS, V_ROWS, Q_NORM, K_NORM, TABLE, KEYS, KEY_SCALES, VALUES, VALUE_SCALES,
    SLOTS, POSITIONS, QUERIES, TOP, eps, context, H: tl.constexpr, KV: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, HALF: tl.constexpr, CODED: tl.constexpr, M: tl.constexpr,
    SHUFFLE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """M heads of a row: its queries first, then its keys, then its values."""
    QUERY_PARTS: tl.constexpr = (H + M - 1) // M
    KEY_PARTS: tl.constexpr = (KV + M - 1) // M
    position = tl.load(POSITIONS + row)
    lane = tl.arange(0, 32)[None, :] + tl.arange(0, M)[:, None] * 0
    cell = tl.load(SLOTS + row).to(tl.int64) * context + position
    if part < QUERY_PARTS:
        head = part * M + tl.arange(0, M)[:, None]
        constants = head_constants(Q_NORM, TABLE, position, K, HALF, M)
        wait(PDL)
        at = Q + (row * H + head) * (2 * K)
        x = lanes_at(at, head < H, K, M)
        x = normed(x, at, constants, eps, K, HALF, M, SHUFFLE)
        for step in tl.static_range((K + 31) // 32):
            tl.store(
                QUERIES + (row * H + head) * K + step * 32 + lane, x[step],
                mask=(head < H) & (step * 32 + lane < K),
            )  # fmt: skip
        tl.store(TOP + row * H + head, LOWEST, mask=head < H)
    elif part < QUERY_PARTS + KEY_PARTS:
        head = (part - QUERY_PARTS) * M + tl.arange(0, M)[:, None]
        constants = head_constants(K_NORM, TABLE, position, K, HALF, M)
        wait(PDL)
        at = K_ROWS + (row * KV + head) * K
        x = lanes_at(at, head < KV, K, M)
        x = normed(x, at, constants, eps, K, HALF, M, SHUFFLE)
        vector = cell * KV + head
        scales = KEY_SCALES + vector * ((K + 63) // 64)
        store_lanes(x, KEYS + vector * K, scales, head < KV, K, CODED, M, SHUFFLE)
    else:
        head = (part - QUERY_PARTS - KEY_PARTS) * M + tl.arange(0, M)[:, None]
        wait(PDL)
        values = lanes_at(V_ROWS + (row * KV + head) * V, head < KV, V, M)
        vector = cell * KV + head
        scales = VALUE_SCALES + vector * ((V + 63) // 64)
        store_lanes(values, VALUES + vector * V, scales, head < KV, V, CODED, M, SHUFFLE)


@triton.jit(
    do_not_specialize=["context"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS"],
)
def prepare_kernel(
    Q, K_ROWS, V_ROWS, Q_NORM, K_NORM, TABLE, KEYS, KEY_SCALES, VALUES, VALUE_SCALES, SLOTS,
    POSITIONS, QUERIES, TOP, eps, context, H: tl.constexpr, KV: tl.constexpr, K: tl.constexpr,
    V: tl.constexpr, HALF: tl.constexpr, CODED: tl.constexpr, M: tl.constexpr,
    SHUFFLE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (parts, rows): H / M of queries, KV / M of keys, as many of values."""
    prepare_heads(
        tl.program_id(0), tl.program_id(1).to(tl.int64), Q, K_ROWS, V_ROWS, Q_NORM, K_NORM, TABLE,
        KEYS, KEY_SCALES, VALUES, VALUE_SCALES, SLOTS, POSITIONS, QUERIES, TOP, eps, context, H, KV,
        K, V, HALF, CODED, M, SHUFFLE, PDL,
    )  # fmt: skip


@triton.jit
def cell_count(position, budget, RATIO: tl.constexpr, SPARSE: tl.constexpr):
    """(blocks in the row's list, selected cells)."""
    chosen = 0
    count = position + 1
    if SPARSE:
        chosen = tl.minimum(count // RATIO, budget)
        count = chosen * RATIO + count % RATIO
    return chosen, count


@triton.jit
def cells_at(SELECTED, i, chosen, position, RATIO: tl.constexpr, SPARSE: tl.constexpr):
    """The positions of the selected cells i, of which there must be so many. SELECTED: the row's
    list."""
    cell = i
    if SPARSE:
        listed = i < chosen * RATIO
        block = tl.load(SELECTED + i // RATIO, mask=listed, other=0)
        tail = (position + 1) // RATIO * RATIO - chosen * RATIO
        cell = tl.where(listed, block * RATIO + i % RATIO, tail + i)
    return cell


@triton.jit
def all_products(
    q, keys, K: tl.constexpr, M: tl.constexpr, N: tl.constexpr, SHUFFLE: tl.constexpr
):  # fmt: skip
    """`products` of a query with N tiles of keys, one after the other."""
    parts = ()
    for n in tl.static_range(N):
        parts = parts + products(q, keys, n * ((K + 31) // 32), K, M, SHUFFLE)
    return parts


@triton.jit
def placed(
    found, parts, at, K: tl.constexpr, M: tl.constexpr, N: tl.constexpr, SHUFFLE: tl.constexpr
):  # fmt: skip
    """`found`, N times [M, 8], with the dots of `all_products` in column `at`."""
    column = tl.arange(0, 8)[None, :]
    after = ()
    for n in tl.static_range(N):
        product = finished(parts, n * ((K + 511) // 512), K, M, SHUFFLE)
        after = after + (tl.where(column == at, product, found[n]),)
    return after


@triton.jit(
    do_not_specialize=["rows", "context", "budget", "room"],
    do_not_specialize_on_alignment=["SELECTED", "SLOTS", "POSITIONS", "TOP"],
)
def scores_kernel(
    QUERIES, KEYS, KEY_SCALES, VALUES, SELECTED, SLOTS, POSITIONS, SCORES, TOP, scale, rows,
    context, budget, room, H: tl.constexpr, KV: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    RATIO: tl.constexpr, CODED: tl.constexpr, SPARSE: tl.constexpr, P: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, TOGETHER: tl.constexpr, AHEAD: tl.constexpr,
    SHUFFLE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (programs, KV * G / P, rows / TOGETHER): every program takes N tiles of M cells in turn,
    for P of the G query heads of one key head. Rows of one slot that select all of their cells go
    together: what is read and decoded for the last one serves all. AHEAD: the values of the cells
    are called into the cache that the multiprocessors share, for `mix`."""
    G: tl.constexpr = H // KV
    TURNS: tl.constexpr = (G + P - 1) // P
    kv = tl.program_id(1) // TURNS
    first_head = tl.program_id(1) % TURNS * P
    # The last rows have the most cells: their programs begin first.
    row = (tl.num_programs(2) - 1 - tl.program_id(2)).to(tl.int64) * TOGETHER
    last_row = row
    passes = 1
    if TOGETHER > 1:
        last_row = tl.minimum(row + TOGETHER, rows) - 1
        joint = tl.load(SLOTS + row) == tl.load(SLOTS + last_row)
        if SPARSE:
            joint = joint & ((tl.load(POSITIONS + last_row) + 1) // RATIO <= budget)
        if not joint:
            passes = (last_row - row + 1).to(tl.int32)
            last_row = row
    slot = tl.load(SLOTS + last_row).to(tl.int64)
    position = tl.load(POSITIONS + last_row)
    wait(PDL)
    for turn in range(passes):
        if TOGETHER > 1:
            slot = tl.load(SLOTS + last_row + turn).to(tl.int64)
            position = tl.load(POSITIONS + last_row + turn)
        row_scores(
            QUERIES, KEYS, KEY_SCALES, VALUES, SELECTED, SCORES, TOP, scale, row + turn,
            last_row + turn, slot * context, position, kv, first_head, budget, room, H, KV, K, V,
            RATIO, CODED, SPARSE, P, M, N, AHEAD, SHUFFLE,
        )  # fmt: skip


@triton.jit
def row_scores(
    QUERIES, KEYS, KEY_SCALES, VALUES, SELECTED, SCORES, TOP, scale, row, last_row, start, position,
    kv, first_head, budget, room, H: tl.constexpr, KV: tl.constexpr, K: tl.constexpr,
    V: tl.constexpr, RATIO: tl.constexpr, CODED: tl.constexpr, SPARSE: tl.constexpr,
    P: tl.constexpr, M: tl.constexpr, N: tl.constexpr, AHEAD: tl.constexpr, SHUFFLE: tl.constexpr,
):  # fmt: skip
    """`scores_kernel` for rows row .. last_row, which follow each other in one slot: more than one
    have each all cells up to theirs. start, position: the slot's first cell, the last row's."""
    G: tl.constexpr = H // KV
    SEGMENTS: tl.constexpr = (K + 511) // 512
    chosen, count = cell_count(position, budget, RATIO, SPARSE)
    heads = tl.minimum(P, G - first_head)
    # Values that eight threads call, 32 bytes each.
    WIDTH: tl.constexpr = 256 // (VALUES.dtype.element_ty.primitive_bitwidth // 8)
    column = tl.arange(0, 8)
    query = QUERIES + (row * H + kv * G + first_head) * K + tl.zeros([M, 1], tl.int32)
    for block in range(tl.program_id(0), (count + M * N - 1) // (M * N), tl.num_programs(0)):
        raw = ()
        scales = ()
        for n in tl.static_range(N):
            i = tl.minimum((block * N + n) * M + tl.arange(0, M), count - 1)
            cell = cells_at(SELECTED + last_row * budget, i, chosen, position, RATIO, SPARSE)
            vector = (start + cell) * KV + kv
            raw = raw + (lanes_at(KEYS + vector[:, None] * K, None, K, M),)
            scales = scales + (scales_at(KEY_SCALES, vector, K, CODED),)
            if AHEAD:
                for part in tl.static_range((V + WIDTH - 1) // WIDTH):
                    at = part * WIDTH + tl.arange(0, 8)[None, :] * (WIDTH // 8)
                    at = VALUES + vector[:, None] * V + tl.minimum(at, V - 1)
                    tl.inline_asm_elementwise(
                        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at.to(tl.int64)],
                        dtype=tl.int32, is_pure=False, pack=1,
                    )  # fmt: skip
        keys = ()
        for n in tl.static_range(N):
            keys = keys + decoded(raw[n], scales[n], K, CODED)
        # Two heads a turn. What a head reads is asked for one before, and what threads exchange
        # comes one later: both take long.
        even = lanes_at(query, None, K, M)
        for r in range(row, last_row + 1):
            query_at = query + (r - row) * (H * K)
            # Behind the last head come those of the next row.
            following = tl.where(r < last_row, H * K, 0)
            count_here = count - (last_row - r)
            scores = SCORES + (r * KV + kv) * room * G + first_head
            tops = TOP + r * H + kv * G + first_head
            for first in range(0, heads, 8):
                found = zeros(N, M, 8)
                waiting = zeros(N * SEGMENTS, M, 8 if SHUFFLE else 32)
                last = tl.minimum(first + 8, heads)
                for head in range(first, last, 2):
                    odd = lanes_at(query_at + tl.minimum(head + 1, heads - 1) * K, None, K, M)
                    found = placed(found, waiting, head - 1 - first, K, M, N, SHUFFLE)
                    waiting = all_products(even, keys, K, M, N, SHUFFLE)
                    next_head = tl.where(head + 2 < heads, (head + 2) * K, following)
                    even = lanes_at(query_at + next_head, None, K, M)
                    found = placed(found, waiting, head - first, K, M, N, SHUFFLE)
                    waiting = all_products(odd, keys, K, M, N, SHUFFLE)
                found = placed(found, waiting, (last - first + 1) // 2 * 2 - 1, K, M, N, SHUFFLE)
                top = tl.full([M, 8], LOWEST, tl.int32)
                for n in tl.static_range(N):
                    place = (block * N + n) * M + tl.arange(0, M)[:, None]
                    live = (place < count_here) & (column[None, :] < heads - first)
                    score = found[n] * scale
                    tl.store(scores + place * G + first + column[None, :], score, mask=live)
                    top = tl.maximum(top, tl.where(live, ordered(score), LOWEST))
                tl.atomic_max(
                    tops + first + column, tl.max(top, axis=0), mask=column < heads - first,
                    sem="relaxed",
                )  # fmt: skip
