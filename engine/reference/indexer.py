"""Sparse attention's block selector: scores of key blocks, and the best blocks of each row.

A block is `ratio` consecutive tokens. Its key is the mean of their raw keys (added in order, one
division), RMS-normed and rotated at the block's first position. Score = sum over heads of
relu(q_h . key) / sqrt(K). A row at position p sees floor((p + 1) / ratio) blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.models.config import IndexerConfig
from engine.reference.compiled import compiled
from engine.reference.lanes import LANES, dot
from engine.reference.norms import normalise
from engine.reference.rotary import normed_heads, rotate
from engine.rows import Rows


def select_blocks(
    q: torch.Tensor,
    k: torch.Tensor,
    q_norm: torch.Tensor,
    k_norm: torch.Tensor,
    table: torch.Tensor,
    raw_keys: torch.Tensor,
    block_keys: torch.Tensor,
    ratio: int,
    config: IndexerConfig,
    eps: float,
    rows: Rows,
) -> torch.Tensor:
    """Writes the rows' keys, then chooses: int32 [R, B], ascending, padded with -1.

    q: float32 [R, H * K]; k: float32 [R, K]; raw_keys: float32 [S, L, K], a ring by position;
    block_keys: float32 [S, context // ratio + 1, K]. B is top_k // ratio, or all
    blocks there are. Equal scores: the lowest block first.
    """
    spans = rows.spans.numpy()
    finish_blocks(
        k.numpy(),
        k_norm.numpy(),
        np.float32(eps),
        table.numpy(),
        raw_keys.numpy(),
        block_keys.numpy(),
        ratio,
        spans,
    )
    queries = normed_heads(
        q.view(rows.count, config.heads, config.key_length).numpy(),
        q_norm,
        eps,
        rows.positions,
        table,
    )
    slots, positions = rows.slots.numpy(), rows.positions.numpy()
    complete = (positions + 1) // ratio
    scores = np.empty((rows.count, max(int(complete.max()), 1)), np.float32)
    budget = min(config.top_k // ratio, block_keys.shape[1])
    divisor = np.float32(config.key_length**0.5)
    score_blocks(queries, block_keys.numpy(), slots, complete, budget, divisor, scores)
    chosen = np.full((rows.count, budget), -1, np.int32)
    for r, count in enumerate(complete):
        if count <= budget:
            chosen[r, :count] = np.arange(count)
        else:  # stable: among equal scores the lowest block comes first
            order = np.argsort(-scores[r, :count], kind="stable")
            chosen[r] = np.sort(order[:budget])
    return torch.from_numpy(chosen)


@compiled
def finish_blocks(
    k: Any, norm: Any, eps: Any, table: Any, raw_keys: Any, block_keys: Any, ratio: int, spans: Any
) -> None:
    """Stores the raw keys of all rows and the keys of the blocks that they complete."""
    length = raw_keys.shape[1]
    mean = np.empty((1, k.shape[1]), np.float32)
    for s in range(spans.shape[0]):
        slot, first, count, start = spans[s, 0], spans[s, 1], spans[s, 2], spans[s, 3]
        for i in range(count):
            raw_keys[slot, (start + i) % length] = k[first + i]
            if (start + i + 1) % ratio != 0:
                continue
            mean[:] = np.float32(0)
            for token in range(start + i + 1 - ratio, start + i + 1):
                source = raw_keys[slot, token % length]
                for d in range(source.size):
                    mean[0, d] += source[d]
            for d in range(mean.shape[1]):
                mean[0, d] = mean[0, d] / np.float32(ratio)
            block = (start + i) // ratio
            target = block_keys[slot, block : block + 1]
            normalise(mean, norm, mean.shape[1], eps, target)
            rotate(target[0], table[block * ratio])


@compiled
def score_blocks(
    queries: Any,
    block_keys: Any,
    slots: Any,
    complete: Any,
    budget: int,
    divisor: Any,
    scores: Any,
) -> None:
    """Scores of the complete blocks of every row that has more of them than its budget."""
    lanes = np.empty(LANES, np.float32)
    for r in range(queries.shape[0]):
        if complete[r] <= budget:
            continue
        for b in range(complete[r]):
            score = np.float32(0)
            for h in range(queries.shape[1]):
                value = dot(queries[r, h], block_keys[slots[r], b], lanes)
                if value > np.float32(0):
                    score += value
            scores[r, b] = score / divisor
