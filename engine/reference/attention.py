"""Grouped-query attention of every row over its own selected cells, with an output gate.

Scores q.k go by the float order of `lanes.py`. The maximum is exact; p = exp(score - maximum). Sums
over cells (of p, and of p * v) run in the order of the selected list in blocks of 64 cells, in turn
inside a block, and the blocks' sums are added in ascending order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.models.config import AttentionConfig
from engine.reference.compiled import compiled
from engine.reference.kv_cache import KvCache, read, store
from engine.reference.lanes import LANES
from engine.reference.linear import float_tile
from engine.reference.matrix import TILE
from engine.reference.rotary import normed_heads
from engine.reference.scalar import exp, sigmoid
from engine.rows import Rows

BLOCK = 64


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
    count = rows.count
    paired = q.view(count, config.heads, 2, -1).numpy()
    queries = normed_heads(paired[:, :, 0], q_norm, eps, rows.positions, table)
    keys = normed_heads(
        k.view(count, config.kv_heads, -1).numpy(), k_norm, eps, rows.positions, table
    )
    store(cache.keys, torch.from_numpy(keys), rows)
    store(cache.values, v.view(count, config.kv_heads, -1), rows)
    out = np.empty((count, config.heads, config.value_length), np.float32)
    blocks = np.empty((0, 0), np.int32) if selected is None else selected.numpy()
    attend(
        queries,
        cache.keys,
        cache.values,
        rows.slots.numpy(),
        rows.positions.numpy(),
        blocks,
        ratio,
        np.float32(config.key_length**-0.5),
        out,
    )
    apply_gate(out, np.ascontiguousarray(paired[:, :, 1]))
    return torch.from_numpy(out.reshape(count, -1))


@compiled
def cells_of(row: int, position: int, blocks: Any, ratio: int, cells: Any) -> int:
    """Fills `cells` with a row's selected cells, ascending; returns how many."""
    count = 0
    first = 0
    if blocks.shape[0]:
        for b in range(blocks.shape[1]):
            block = blocks[row, b]
            if block >= 0:
                for i in range(ratio):
                    cells[count] = block * ratio + i
                    count += 1
        first = (position + 1) // ratio * ratio
    for cell in range(first, position + 1):
        cells[count] = cell
        count += 1
    return count


@compiled
def softmax_sum(scores: Any, count: int) -> Any:
    """Turns scores into exp(score - maximum), in place, and returns their ordered sum."""
    maximum = scores[0]
    for i in range(1, count):
        maximum = max(maximum, scores[i])
    total = np.float32(0)
    for start in range(0, count, BLOCK):
        part = np.float32(0)
        for i in range(start, min(start + BLOCK, count)):
            scores[i] = exp(scores[i] - maximum)
            part += scores[i]
        total = part if start == 0 else total + part
    return total


@compiled
def weighted_values(weights: Any, values: Any, count: int, part: Any, out: Any) -> None:
    """out = ordered sum over cells of weights[i] * values[i], float32 [V]."""
    for start in range(0, count, BLOCK):
        part[:] = np.float32(0)
        for i in range(start, min(start + BLOCK, count)):
            w = weights[i]
            v = values[i]
            for d in range(out.size):
                part[d] += w * v[d]
        for d in range(out.size):
            out[d] = part[d] if start == 0 else out[d] + part[d]


@compiled
def attend(
    queries: Any,
    key_cells: Any,
    value_cells: Any,
    slots: Any,
    positions: Any,
    blocks: Any,
    ratio: int,
    scale: Any,
    out: Any,
) -> None:
    """out[r, h] = softmax(q.k * scale) v for every row and head, before the gate."""
    heads, key_length = queries.shape[1], queries.shape[2]
    value_length = out.shape[2]
    kv_heads = max(key_cells.floats.shape[2], 1)
    group = heads // kv_heads
    most = np.int64(positions.max()) + 1
    tiles = (most + TILE - 1) // TILE
    cells = np.empty(most, np.int32)
    keys = np.zeros((tiles, key_length, TILE), np.float32)
    values = np.empty((most, value_length), np.float32)
    scores = np.empty(tiles * TILE, np.float32)
    vector = np.empty(key_length, np.float32)
    lanes = np.empty((LANES, TILE), np.float32)
    tile_part = np.empty(TILE, np.float32)
    part = np.empty(value_length, np.float32)
    for r in range(queries.shape[0]):
        slot = slots[r]
        count = cells_of(r, positions[r], blocks, ratio, cells)
        for kv in range(kv_heads):
            for i in range(count):
                read(key_cells, slot, cells[i], kv, vector)
                tile, column = i // TILE, i % TILE
                for k in range(key_length):
                    keys[tile, k, column] = vector[k]
                read(value_cells, slot, cells[i], kv, values[i])
            for h in range(kv * group, (kv + 1) * group):
                for tile in range((count + TILE - 1) // TILE):
                    float_tile(
                        queries[r, h],
                        keys[tile],
                        lanes,
                        tile_part,
                        scores[tile * TILE : (tile + 1) * TILE],
                    )
                for i in range(count):
                    scores[i] = scores[i] * scale
                total = softmax_sum(scores, count)
                weighted_values(scores, values, count, part, out[r, h])
                for d in range(value_length):
                    out[r, h, d] = out[r, h, d] / total


@compiled
def apply_gate(out: Any, gate: Any) -> None:
    """out *= sigmoid(gate), in place. float32 [R, H, V]."""
    for r in range(out.shape[0]):
        for h in range(out.shape[1]):
            x = out[r, h]
            g = gate[r, h]
            for d in range(x.size):
                x[d] = x[d] * sigmoid(g[d])
