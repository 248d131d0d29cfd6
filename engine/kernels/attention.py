"""Grouped-query attention of every row over its own selected cells, with an output gate.

Four launches, each over all rows: `prepare` (norm, rotation, storing), `scores`, `mix`, `combine`.
Order: q.k by the lanes of `lanes.py`, then times the scale; the row's maximum is exact;
p = exp(score - maximum); sums over cells of p and of p * v go through 64 selected cells in turn,
and the blocks' sums are added in ascending order; one division; times sigmoid(gate). Which program
computes a block does not matter to it. Sums start from +0 and so are never -0: adding the 0 of a
cell or a dim that is not there changes nothing.

Scratch, for R rows, J blocks of 64 selected cells, G query heads a key head padded to P:
SCORES float32 [R, KV, 64 J, P]: scores, then p; PARTS float32 [R, J, H, V] and SUMS [R, J, H]: sums
of blocks; TOP int32 [R, H]: the largest score as an integer that orders alike; CHOSEN int32 [R]:
blocks in the row's list.
"""

from __future__ import annotations

from dataclasses import dataclass

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
# Bytes of SCORES and PARTS; more rows take turns.
SCRATCH_BYTES = 512 << 20
# Programs that fill a device a few times over.
PROGRAMS = 1024
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


@triton.jit
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


@triton.jit
def scores_kernel(
    QUERIES, KEYS, KEY_SCALES, SELECTED, SLOTS, POSITIONS, CHOSEN, SCORES, TOP, scale, context,
    budget, room, H: tl.constexpr, KV: tl.constexpr, K: tl.constexpr, RATIO: tl.constexpr,
    CODED: tl.constexpr, SPARSE: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Grid (programs, KV, rows): every program takes blocks of 64 cells in turn."""
    kv = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    G: tl.constexpr = H // KV
    head = tl.arange(0, P)
    head_live = head < G
    position = tl.load(POSITIONS + row)
    start = tl.load(SLOTS + row).to(tl.int64) * context
    chosen, count = cell_count(CHOSEN, row, position, RATIO, SPARSE)
    queries = QUERIES + (row * H + kv * G) * K
    for block in range(tl.program_id(0), (count + CELLS - 1) // CELLS, tl.num_programs(0)):
        i = block * CELLS + tl.arange(0, CELLS)
        live = i < count
        cell = cells_at(SELECTED + row * budget, i, live, chosen, position, RATIO, SPARSE)
        vector = (start + cell) * KV + kv
        score = dots(queries, KEYS, KEY_SCALES, vector, live, head_live, K, CODED, P, CELLS)
        score = score * scale
        scores = SCORES + (row * KV + kv) * room * P + i.to(tl.int64)[None, :] * P + head[:, None]
        tl.store(scores, score, mask=live[None, :])
        top = tl.max(tl.where(live[None, :], ordered(score), LOWEST), axis=1)
        tl.atomic_max(TOP + row * H + kv * G + head, top, mask=head_live, sem="relaxed")


@triton.jit
def mix_kernel(
    VALUES, VALUE_SCALES, SELECTED, SLOTS, POSITIONS, CHOSEN, SCORES, TOP, PARTS, SUMS, context,
    budget, room, H: tl.constexpr, KV: tl.constexpr, V: tl.constexpr, RATIO: tl.constexpr,
    CODED: tl.constexpr, SPARSE: tl.constexpr, P: tl.constexpr, BV: tl.constexpr,
    UNROLL: tl.constexpr,
):  # fmt: skip
    """Block sums of p and p * v. Grid as of `scores_kernel`."""
    kv = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    G: tl.constexpr = H // KV
    head = tl.arange(0, P)
    head_live = head < G
    dim = tl.arange(0, BV)
    position = tl.load(POSITIONS + row)
    start = tl.load(SLOTS + row).to(tl.int64) * context
    chosen, count = cell_count(CHOSEN, row, position, RATIO, SPARSE)
    top = disordered(tl.load(TOP + row * H + kv * G + head, mask=head_live, other=0))
    for block in range(tl.program_id(0), (count + CELLS - 1) // CELLS, tl.num_programs(0)):
        first = block * CELLS
        weights = SCORES + ((row * KV + kv) * room + first) * P
        i = tl.arange(0, CELLS)[:, None]
        live = (first + i < count) & head_live[None, :]
        p = exp(tl.load(weights + i * P + head[None, :], mask=live, other=0.0) - top[None, :])
        tl.store(weights + i * P + head[None, :], p, mask=live)
        tl.debug_barrier()
        parts = tl.zeros([P, BV], tl.float32)
        total = tl.zeros([P], tl.float32)
        for step in range(0, tl.minimum(count - first, CELLS), UNROLL):
            for u in tl.static_range(UNROLL):
                at = first + step + u
                inside = at < count
                cell = cells_at(
                    SELECTED + row * budget, at, inside, chosen, position, RATIO, SPARSE
                )
                weight = tl.load(
                    weights + (step + u) * P + head, mask=head < inside.to(tl.int32) * G, other=0.0
                )
                v = read_values(
                    VALUES, VALUE_SCALES, (start + cell) * KV + kv, dim,
                    dim < inside.to(tl.int32) * V, V, CODED,
                )  # fmt: skip
                total = total + weight
                parts = parts + weight[:, None] * v[None, :]
        block_at = (row * (room // CELLS) + block) * H + kv * G + head
        tl.store(
            PARTS + block_at[:, None] * V + dim[None, :], parts,
            mask=head_live[:, None] & (dim < V)[None, :],
        )  # fmt: skip
        tl.store(SUMS + block_at, total, mask=head_live)


@triton.jit
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


@dataclass(frozen=True, slots=True, eq=False)
class _Scratch:
    """See the module's docstring; `room`: cells of a row in SCORES."""

    scores: torch.Tensor
    parts: torch.Tensor
    sums: torch.Tensor
    room: int
    rows: int

    @classmethod
    def empty(
        cls, rows: int, cells: int, config: AttentionConfig, device: torch.device
    ) -> _Scratch:
        room = -(-cells // BLOCK) * BLOCK
        padded = triton.next_power_of_2(config.heads // config.kv_heads)
        blocks = room // BLOCK
        row_bytes = 4 * (
            config.kv_heads * room * padded + blocks * config.heads * (config.value_length + 1)
        )
        rows = max(1, min(rows, SCRATCH_BYTES // row_bytes))
        return cls(
            torch.empty(rows, config.kv_heads, room, padded, device=device),
            torch.empty(rows, blocks, config.heads, config.value_length, device=device),
            torch.empty(rows, blocks, config.heads, device=device),
            room,
            rows,
        )


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
    scratch = _Scratch.empty(count, cells, config, q.device)
    padded = scratch.scores.shape[3]
    for first in range(0, count, scratch.rows):
        part = slice(first, min(first + scratch.rows, count))
        n = part.stop - first
        programs = min(scratch.room // BLOCK, max(1, PROGRAMS // (n * kv_heads)))
        where = (listed[part], rows.slots[part], rows.positions[part], chosen[part])
        scores_kernel[(programs, kv_heads, n)](
            queries[part], keys.values, keys.scales, *where, scratch.scores, top[part],
            config.key_length**-0.5, context, budget, scratch.room, KV=kv_heads,
            K=config.key_length, CODED=keys.coded, P=padded, num_warps=4, **shape,
        )  # fmt: skip
        mix_kernel[(programs, kv_heads, n)](
            values.values, values.scales, *where, scratch.scores, top[part], scratch.parts,
            scratch.sums, context, budget, scratch.room, KV=kv_heads, V=value, CODED=keys.coded,
            P=padded, BV=triton.next_power_of_2(value), UNROLL=8, num_warps=4, **shape,
        )  # fmt: skip
        combine_kernel[(heads, n)](
            q[part], rows.positions[part], chosen[part], scratch.parts, scratch.sums, out[part],
            scratch.room, V=value, BV=triton.next_power_of_2(value), UNROLL=8, num_warps=2, **shape,
        )  # fmt: skip
    return out
