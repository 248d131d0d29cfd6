"""Grouped-query attention of every row over its own selected cells, with an output gate.

Launches over all rows: `prepare` (norm, rotation, storing), `scores`, then `mix` and `combine` for
few rows or `whole` for many. Programs take blocks of cells in turn up to the row's position, which
is read on the device; what lies behind it costs nothing.

Order: q.k by the lanes of `lanes.py`, then times the scale; the row's maximum is exact;
p = exp(score - maximum); sums over cells of p and of p * v go through 64 selected cells in turn,
and the blocks' sums are added in ascending order; one division; times sigmoid(gate). Which program
computes a block does not matter to it. Sums start from +0 and so are never -0: adding the 0 of a
cell or a dim that is not there changes nothing.

Scratch, for R rows, J blocks of 64 selected cells, G query heads a key head, float32: SCORES
[R, KV, 64 J, G], scores and then p; PARTS [R, J, H, V] and SUMS [R, J, H], sums of blocks. int32:
TOP [R, H], the largest score as an integer that orders alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import torch
import triton

from engine.kernels.attention_mix import combine_kernel, mix_kernel, whole_kernel
from engine.kernels.attention_scores import BLOCK, prepare_kernel, scores_kernel
from engine.kernels.dependent import launch_options
from engine.kernels.dots import shuffles
from engine.kernels.inputs import Input, as_input, room
from engine.kernels.kv_cache import KvCache
from engine.models.config import AttentionConfig
from engine.rows import Rows

# Bytes of scratch; more rows take turns.
SCRATCH_BYTES = 512 << 20
# Programs that fill a device a few times over; of `scores`, whose programs last long.
PROGRAMS, SCORES_PROGRAMS = 1024, 32768
# From how many programs of `whole` on the sums of blocks stay in them: fewer leave a card idle.
WHOLE_PROGRAMS = 512
# Vectors of a tile of `dots.py` with one warp.
TILE = 4
# Of `mix` and of `whole`: neighbouring dims of a thread, how often it has so many, its most query
# heads, cells of a step.
MIX_SHARE = (2, 1, 6, 16)
WHOLE_SHARE = (4, 2, 12, 4)
# Query heads, tiles of cells, and rows of a program of `scores`, for few cells and for many.
FEW_SCORES = (4, 2, 1)
MANY_SCORES = (12, 4, 4)


@dataclass(frozen=True, slots=True)
class _Tiling:
    """How the programs share the work; nothing of it changes a sum.

    `heads`, `tiles`, `together`: query heads, tiles of cells and rows of a program of `scores`.
    `rows` at a time have room in the scratch, `cells` a row, whole blocks. `whole`: one program for
    all blocks of a row.
    """

    heads: int
    tiles: int
    together: int
    rows: int
    cells: int
    whole: bool


def _tiling(rows: int, most: int, cells: int, config: AttentionConfig) -> _Tiling:
    """For `rows` rows of at most `cells` selected cells. `most`: those of any window with so many
    rows, which alone decides what is compiled."""
    group = config.heads // config.kv_heads
    blocks = -(-most // BLOCK)
    at_most = min(rows, SCRATCH_BYTES // (4 * config.heads * blocks * BLOCK))
    whole = at_most * config.heads // _part_of(group, WHOLE_SHARE[2]) >= WHOLE_PROGRAMS
    here = -(-cells // BLOCK)
    a_row = config.heads * here * (BLOCK + (0 if whole else config.value_length + 1))
    turns = -(-rows // max(1, SCRATCH_BYTES // (4 * a_row)))
    many = rows * blocks * config.kv_heads >= PROGRAMS
    heads, tiles, together = MANY_SCORES if many else FEW_SCORES
    room = -(-rows // (turns * together)) * together  # turns of the same length
    return _Tiling(min(heads, group), tiles, together, room, here * BLOCK, whole)


def _part_of(group: int, most: int) -> int:
    """The largest divisor of `group` up to `most`."""
    return max(p for p in range(1, most + 1) if group % p == 0)


def _mixing(config: AttentionConfig, share: tuple[int, int, int, int]) -> dict[str, int]:
    """Constants of `mix` and `whole`: which heads and dims a program and its threads have."""
    group = config.heads // config.kv_heads
    dims, pieces, most, step = share
    heads = _part_of(group, most)
    threads = max(32, triton.next_power_of_2(-(-config.value_length // (dims * pieces))))
    pieces = triton.next_power_of_2(-(-config.value_length // (threads * dims)))
    return {
        "P": heads, "PADDED": triton.next_power_of_2(heads), "W": gcd(heads, 4), "D": dims,
        "PIECES": pieces, "T": threads, "STEP": step, "num_warps": threads // 32,
    }  # fmt: skip


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
) -> Input:
    """Writes the rows' keys and values, then attends: float32 [R, H * V], gated.

    q: float32 [R, H * 2K], each head its query and then its gate; k: [R, KV * K]; v: [R, KV * V].
    table: `rotary_table`. selected: int32 [R, B], ascending block numbers of `ratio` cells, all
    complete blocks of the row or B of them, padded with -1; to them the cells after the last whole
    block are added. None: all cells to the row.
    """
    prepared = room_for_queries(rows.count, config, q.device)
    if rows.count:
        prepare_kernel[(parts_of(config), rows.count)](
            q, k, v, q_norm, k_norm, table, *cells_of(cache), rows.slots, rows.positions, *prepared,
            eps, cache.keys.values.shape[1], HALF=table.shape[2], **shape_of(cache, config),
            SHUFFLE=shuffles(q), num_warps=1, **launch_options(q),
        )  # fmt: skip
    return attend(q, prepared, cache, selected, ratio, config, rows)


def room_for_queries(
    rows: int, config: AttentionConfig, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `prepare` gives to `attend`: queries, float32 [R, H, K], and TOP."""
    return (
        torch.empty(rows, config.heads, config.key_length, device=device),
        torch.empty(rows, config.heads, dtype=torch.int32, device=device),
    )


def parts_of(config: AttentionConfig) -> int:
    """Programs of `prepare` for a row."""
    return -(-config.heads // TILE) + 2 * -(-config.kv_heads // TILE)


def cells_of(cache: KvCache) -> tuple[torch.Tensor, ...]:
    """Keys, their scales, values, their scales."""
    return cache.keys.values, cache.keys.scales, cache.values.values, cache.values.scales


def shape_of(cache: KvCache, config: AttentionConfig) -> dict[str, int]:
    """Constants of `prepare`."""
    return {
        "H": config.heads, "KV": config.kv_heads, "K": config.key_length, "V": config.value_length,
        "CODED": cache.keys.coded, "M": TILE,
    }  # fmt: skip


def attend(
    q: torch.Tensor,
    prepared: tuple[torch.Tensor, torch.Tensor],
    cache: KvCache,
    selected: torch.Tensor | None,
    ratio: int,
    config: AttentionConfig,
    rows: Rows,
) -> Input:
    """`attention` of rows that are `prepared`."""
    count, context = rows.count, cache.keys.values.shape[1]
    heads, kv_heads, width, value = (
        config.heads, config.kv_heads, config.key_length, config.value_length,
    )  # fmt: skip
    made = room(count, heads * value, q.device)
    if not count:
        return made
    sparse = selected is not None
    budget = selected.shape[1] if selected is not None else 0
    queries, top = prepared
    listed = top if selected is None else selected
    keys, values = cache.keys, cache.values
    options = launch_options(q)
    shape = {"H": heads, "RATIO": max(ratio, 1), "SPARSE": sparse, **options}
    lanes = {"K": width, "M": TILE, "SHUFFLE": shuffles(q), "num_warps": 1}
    most = min(context, budget * ratio + ratio - 1) if sparse else context
    cells = most if rows.reach is None else min(most, rows.reach)
    tiling = _tiling(count, most, cells, config)
    group = heads // kv_heads
    shape |= {"KV": kv_heads, "CODED": keys.coded}
    mixing = _mixing(config, WHOLE_SHARE if tiling.whole else MIX_SHARE) | {"V": value, **shape}
    scores = torch.empty(tiling.rows, kv_heads, tiling.cells, group, device=q.device)
    blocks = 0 if tiling.whole else tiling.cells // BLOCK
    sums = torch.empty(tiling.rows, blocks, heads, value, device=q.device)
    weights = torch.empty(tiling.rows, blocks, heads, device=q.device)
    out = (made.values, made.codes, made.info)
    groups = made.codes.shape[1]
    for first in range(0, count, tiling.rows):
        part = slice(first, min(first + tiling.rows, count))
        n = part.stop - first
        where = (listed[part], rows.slots[part], rows.positions[part])
        turns = kv_heads * -(-group // tiling.heads)
        taken = tiling.tiles * TILE
        lines = -(-n // tiling.together)
        most_programs = SCORES_PROGRAMS if tiling.together > 1 else 2 * PROGRAMS
        programs = min(-(-tiling.cells // taken), max(1, most_programs // (lines * turns)))
        scores_kernel[(programs, turns, lines)](
            queries[part], keys.values, keys.scales, values.values, *where, scores, top[part],
            width**-0.5, n, context, budget, tiling.cells, P=tiling.heads, N=tiling.tiles, V=value,
            TOGETHER=tiling.together, AHEAD=not tiling.whole and lanes["SHUFFLE"], **lanes, **shape,
        )  # fmt: skip
        if tiling.whole:
            whole_kernel[(heads // mixing["P"], n)](
                values.values, values.scales, *where, scores, top[part], q, *out, first, context,
                budget, tiling.cells, groups, **mixing,
            )  # fmt: skip
            continue
        turns = heads // mixing["P"]
        programs = min(blocks, max(1, PROGRAMS // (n * turns)))
        mix_kernel[(programs, turns, n)](
            values.values, values.scales, *where, scores, top[part], sums, weights, context, budget,
            tiling.cells, **mixing,
        )  # fmt: skip
        combine_kernel[(-(-value // 32), heads, n)](
            q, rows.positions[part], sums, weights, *out, first, budget, tiling.cells, groups,
            H=heads, V=value, RATIO=max(ratio, 1), SPARSE=sparse, B=32,
            UNROLL=min(64, -(-most // (8 * BLOCK)) * 8), num_warps=1, **options,
        )  # fmt: skip
    return made if value % 32 == 0 else as_input(made.values)
