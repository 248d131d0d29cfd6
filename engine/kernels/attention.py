"""Grouped-query attention of every row over its own selected cells, with an output gate.

Four launches, each over all rows: `prepare` (norm, rotation, storing), `scores`, `mix`, `combine`.
Order: q.k by the lanes of `lanes.py`, then times the scale; the row's maximum is exact;
p = exp(score - maximum); sums over cells of p and of p * v go through 64 selected cells in turn,
and the blocks' sums are added in ascending order; one division; times sigmoid(gate). Which program
computes a block does not matter to it. Sums start from +0 and so are never -0: adding the 0 of a
cell or a dim that is not there changes nothing.

Scratch, for R rows, J blocks of 64 selected cells, G query heads a key head, float32: SCORES
[R, H, 64 J]; WEIGHTS [R, KV, shares, 64 J, G], p; PARTS [R, J, H, V] and SUMS
[R, J, H], sums of blocks. int32: TOP [R, H], the largest score as an integer that orders alike;
CHOSEN [R], blocks in the row's list.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
import triton
import triton.language as tl

from engine.kernels.dots import dots
from engine.kernels.kv_cache import KvCache, block_of, read_values, store_vector
from engine.kernels.norms import segment_levels
from engine.kernels.rotary import normed_head
from engine.kernels.scalar import exp, sigmoid
from engine.models.config import AttentionConfig
from engine.rows import Rows

BLOCK = 64
# Bytes of scratch; more rows take turns.
SCRATCH_BYTES = 512 << 20
# Programs that fill a device a few times over.
PROGRAMS = 1024
# Query heads of a program of `scores`: the first that divides a key head's. Fewest dims of `mix`.
MOST_HEADS = (8, 4)
FEWEST_DIMS = 64
LOWEST = tl.constexpr(-(2**31))
CELLS = tl.constexpr(BLOCK)


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


@triton.jit(
    do_not_specialize=["context", "budget", "room"],
    do_not_specialize_on_alignment=["SELECTED", "SLOTS", "POSITIONS", "TOP", "CHOSEN"],
)
def mix_kernel(
    VALUES, VALUE_SCALES, SELECTED, SLOTS, POSITIONS, CHOSEN, SCORES, WEIGHTS, TOP, PARTS, SUMS,
    context, budget, room, H: tl.constexpr, KV: tl.constexpr, V: tl.constexpr,
    RATIO: tl.constexpr, CODED: tl.constexpr, SPARSE: tl.constexpr, PADDED: tl.constexpr,
    B: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Sums of blocks of p and p * v. Grid (programs, KV * V / B, rows): a program has B dims of
    the values, for all query heads of a key head. It writes p and reads it again one number at a
    time: such a number need not move between threads."""
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
        scores = SCORES + (row * H + kv * G) * room + first
        weights = WEIGHTS + (((row * KV + kv) * SHARES + share) * room + first) * G
        i = tl.arange(0, CELLS)[:, None]
        live = (first + i < count) & (head < G)[None, :]
        p = exp(tl.load(scores + head[None, :] * room + i, mask=live, other=0.0) - top[None, :])
        tl.store(weights + i * G + head[None, :], p, mask=live)
        tl.debug_barrier()
        parts = ()
        for _ in tl.static_range(G):
            parts = parts + (tl.zeros([B], tl.float32),)
        total = tl.zeros([PADDED], tl.float32)
        for step in range(0, tl.minimum(count - first, CELLS), STEP):
            for u in tl.static_range(STEP):
                inside = first + step + u < count
                cell = cells_at(
                    SELECTED + row * budget, first + step + u, inside, chosen, position, RATIO,
                    SPARSE,
                )  # fmt: skip
                width = inside.to(tl.int32)
                v = read_values(
                    VALUES, VALUE_SCALES, (start + cell) * KV + kv, dim, dim < width * V, V, CODED
                )
                at = weights + (step + u) * G
                total = total + tl.load(at + head, mask=head < width * G, other=0.0)
                after = ()
                for h in tl.static_range(G):
                    weight = tl.load(at + h, mask=inside, other=0.0)
                    after = after + (parts[h] + weight * v,)
                parts = after
        sums = (row * (room // CELLS) + block) * H + kv * G
        for h in tl.static_range(G):
            tl.store(PARTS + (sums + h) * V + dim, parts[h], mask=dim < V)
        if share == 0:
            tl.store(SUMS + sums + head, total, mask=head < G)


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


@dataclass(frozen=True, slots=True)
class _Tiling:
    """`heads` query heads a program of `scores`, `turns` such programs for a key head; `dims` of
    the values a program of `mix`, `shares` such programs."""

    heads: int
    turns: int
    dims: int
    shares: int


@dataclass(frozen=True, slots=True, eq=False)
class _Scratch:
    """See the module's docstring. `rows`: rows that have room; `room`: cells of a row."""

    scores: torch.Tensor
    weights: torch.Tensor
    parts: torch.Tensor
    sums: torch.Tensor
    rows: int
    room: int

    @classmethod
    def empty(
        cls, rows: int, cells: int, tiling: _Tiling, config: AttentionConfig, device: torch.device
    ) -> _Scratch:
        """For `rows` rows, or as many as fit."""
        blocks = -(-cells // BLOCK)
        room = blocks * BLOCK
        group = config.heads // config.kv_heads
        a_row = (
            (config.heads, room),
            (config.kv_heads, tiling.shares, room, group),
            (blocks, config.heads, config.value_length),
            (blocks, config.heads),
        )
        rows = max(1, min(rows, SCRATCH_BYTES // (4 * sum(prod(shape) for shape in a_row))))
        made = [torch.empty(rows, *shape, device=device) for shape in a_row]
        return cls(made[0], made[1], made[2], made[3], rows, room)


def _tiling(rows: int, cells: int, config: AttentionConfig) -> _Tiling:
    group, width = config.heads // config.kv_heads, config.value_length
    heads = next((p for p in MOST_HEADS if group % p == 0), min(4, triton.next_power_of_2(group)))
    programs = rows * config.kv_heads * -(-cells // BLOCK)
    dims = triton.next_power_of_2(width)
    while dims > FEWEST_DIMS and programs * (width // dims) < PROGRAMS:
        dims //= 2
    return _Tiling(heads, -(-group // heads), dims, -(-width // dims))


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_norm: torch.Tensor,
    k_norm: torch.Tensor,
    table: torch.Tensor,
    cache: KvCache,
    selected: torch.Tensor | None,
    ratio: int,
    config: AttentionConfig,
    eps: float,
    rows: Rows,
) -> torch.Tensor:
    """Writes the rows' keys and values, then attends: float32 [R, H * V], gated.

    q: float32 [R, H * 2K], each head its query and then its gate; k: [R, KV * K]; v: [R, KV * V].
    table: `rotary_table`. selected: int32 [R, B], ascending block numbers of `ratio` cells padded
    with -1, to which the cells after the last whole block are added; None: all cells to the row.
    """
    count, context = rows.count, cache.keys.values.shape[1]
    heads, kv_heads, value = config.heads, config.kv_heads, config.value_length
    out = torch.empty(count, heads * value, device=q.device)
    if not count:
        return out
    sparse = selected is not None
    budget = selected.shape[1] if selected is not None else 0
    queries = torch.empty(count, heads, config.key_length, device=q.device)
    top = torch.empty(count, heads, dtype=torch.int32, device=q.device)
    chosen = torch.empty(count, dtype=torch.int32, device=q.device)
    listed = chosen if selected is None else selected
    keys, values = cache.keys, cache.values
    shape = {"H": heads, "RATIO": max(ratio, 1), "SPARSE": sparse, "enable_fp_fusion": False}
    prepare_kernel[(heads + 2 * kv_heads, count)](
        q, k, v, q_norm, k_norm, table, keys.values, keys.scales, values.values, values.scales,
        listed, rows.slots, rows.positions, queries, top, chosen, eps, context, budget, H=heads,
        KV=kv_heads, K=config.key_length, V=value, HALF=table.shape[2],
        LEVELS=segment_levels(config.key_length), CODED=keys.coded, SPARSE=sparse,
        BK=block_of(config.key_length), BV=block_of(value),
        BUDGET=triton.next_power_of_2(max(budget, 1)), num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
    cells = min(context, budget * ratio + ratio - 1) if sparse else context
    tiling = _tiling(count, cells, config)
    scratch = _Scratch.empty(count, cells, tiling, config, q.device)
    group = heads // kv_heads
    for first in range(0, count, scratch.rows):
        part = slice(first, min(first + scratch.rows, count))
        n = part.stop - first
        programs = min(scratch.room // BLOCK, max(1, PROGRAMS // (n * kv_heads)))
        where = (listed[part], rows.slots[part], rows.positions[part], chosen[part])
        scores_kernel[(programs, kv_heads * tiling.turns, n)](
            queries[part], keys.values, keys.scales, *where, scratch.scores, top[part],
            config.key_length**-0.5, context, budget, scratch.room, KV=kv_heads,
            K=config.key_length, CODED=keys.coded, TURNS=tiling.turns, P=tiling.heads, num_warps=2,
            **shape,
        )  # fmt: skip
        mix_kernel[(programs, kv_heads * tiling.shares, n)](
            values.values, values.scales, *where, scratch.scores, scratch.weights, top[part],
            scratch.parts, scratch.sums, context, budget, scratch.room, KV=kv_heads, V=value,
            CODED=keys.coded, PADDED=triton.next_power_of_2(group), B=tiling.dims, STEP=8,
            num_warps=2, **shape,
        )  # fmt: skip
        combine_kernel[(heads, n)](
            q[part], rows.positions[part], chosen[part], scratch.parts, scratch.sums, out[part],
            scratch.room, V=value, BV=triton.next_power_of_2(value), UNROLL=16, num_warps=2,
            **shape,
        )  # fmt: skip
    return out
