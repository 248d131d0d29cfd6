"""Grouped-query attention of every row over its own selected cells, with an output gate.

Launches over all rows: `prepare` (norm, rotation, storing), `scores`, then `mix` and `combine` for
few rows or `whole` for many.

Order: q.k by the lanes of `lanes.py`, then times the scale; the row's maximum is exact;
p = exp(score - maximum); sums over cells of p and of p * v go through 64 selected cells in turn,
and the blocks' sums are added in ascending order; one division; times sigmoid(gate). Which program
computes a block does not matter to it. Sums start from +0 and so are never -0: adding the 0 of a
cell or a dim that is not there changes nothing.

Scratch, for R rows, J blocks of 64 selected cells, G query heads a key head, float32: SCORES
[R, H, 64 J]; WEIGHTS [R, KV, shares, 64 J (`whole`: 64), G], p; PARTS [R, J, H, V] and SUMS
[R, J, H], sums of blocks. int32: TOP [R, H], the largest score as an integer that orders alike;
CHOSEN [R], blocks in the row's list.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from engine.kernels.attention_mix import combine_kernel, mix_kernel, whole_kernel
from engine.kernels.attention_scores import BLOCK, prepare_kernel, scores_kernel
from engine.kernels.kv_cache import KvCache, block_of
from engine.kernels.norms import segment_levels
from engine.models.config import AttentionConfig
from engine.rows import Rows

# Bytes of scratch; more rows take turns.
SCRATCH_BYTES = 512 << 20
# Programs that fill a device a few times over.
PROGRAMS = 1024
# Query heads of a program of `scores`: the first that divides a key head's. Fewest dims of `mix`.
MOST_HEADS = (8, 4)
FEWEST_DIMS = 64


@dataclass(frozen=True, slots=True)
class _Tiling:
    """How the programs share the work; nothing of it changes a sum.

    `heads`: query heads a program of `scores`, `turns` such programs for a key head. `dims`: of the
    values a program of `mix` or `whole`, `shares` such programs. `rows` at a time have room in the
    scratch, `cells` a row, whole blocks. `whole`: one program for all blocks of a row.
    """

    heads: int
    turns: int
    dims: int
    shares: int
    rows: int
    cells: int
    whole: bool


def _tiling(rows: int, cells: int, config: AttentionConfig) -> _Tiling:
    """For `rows` rows of at most `cells` selected cells."""
    group, kv_heads, width = (
        config.heads // config.kv_heads,
        config.kv_heads,
        config.value_length,
    )
    heads = next((p for p in MOST_HEADS if group % p == 0), min(4, triton.next_power_of_2(group)))
    blocks = -(-cells // BLOCK)
    dims = triton.next_power_of_2(width)
    room = min(rows, SCRATCH_BYTES // (4 * config.heads * blocks * BLOCK))
    whole = room * kv_heads >= PROGRAMS
    if not whole:
        while dims > FEWEST_DIMS and rows * kv_heads * blocks * (width // dims) < PROGRAMS:
            dims //= 2
        a_row = blocks * (BLOCK * (1 + width // dims) + width + 1)
        room = min(rows, SCRATCH_BYTES // (4 * config.heads * a_row))
    return _Tiling(
        heads, -(-group // heads), dims, -(-width // dims), max(room, 1), blocks * BLOCK, whole
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
    tiling = _tiling(count, cells, config)
    room, group = tiling.cells, heads // kv_heads
    mixing = {
        "KV": kv_heads, "V": value, "CODED": keys.coded, "PADDED": triton.next_power_of_2(group),
        "B": tiling.dims, "STEP": 8, "num_warps": 2, **shape,
    }  # fmt: skip
    scores = torch.empty(tiling.rows, heads, room, device=q.device)
    blocks = 1 if tiling.whole else room // BLOCK
    weights = torch.empty(tiling.rows, tiling.shares, heads, blocks * BLOCK, device=q.device)
    kept = 0 if tiling.whole else tiling.rows
    parts = torch.empty(kept, blocks, heads, value, device=q.device)
    sums = torch.empty(kept, blocks, heads, device=q.device)
    for first in range(0, count, tiling.rows):
        part = slice(first, min(first + tiling.rows, count))
        n = part.stop - first
        programs = min(room // BLOCK, max(1, PROGRAMS // (n * kv_heads)))
        where = (listed[part], rows.slots[part], rows.positions[part], chosen[part])
        scores_kernel[(programs, kv_heads * tiling.turns, n)](
            queries[part], keys.values, keys.scales, *where, scores, top[part],
            config.key_length**-0.5, context, budget, room, KV=kv_heads,
            K=config.key_length, CODED=keys.coded, TURNS=tiling.turns, P=tiling.heads, num_warps=2,
            **shape,
        )  # fmt: skip
        if tiling.whole:
            whole_kernel[(kv_heads * tiling.shares, n)](
                values.values, values.scales, *where, scores, top[part], weights, q[part],
                out[part], context, budget, room, **mixing,
            )  # fmt: skip
            continue
        mix_kernel[(programs, kv_heads * tiling.shares, n)](
            values.values, values.scales, *where, scores, top[part], weights, parts, sums, context,
            budget, room, **mixing,
        )  # fmt: skip
        combine_kernel[(heads, n)](
            q[part], rows.positions[part], chosen[part], parts, sums, out[part], room, V=value,
            BV=triton.next_power_of_2(value), UNROLL=16, num_warps=2, **shape,
        )  # fmt: skip
    return out
