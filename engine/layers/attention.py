"""The attention mixer: dense, or sparse over the blocks that its indexer selects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from engine.layers.context import Context
from engine.models import weights


@dataclass(frozen=True, slots=True, eq=False)
class IndexerState:
    """raw_keys: float32 [S, L, K], a ring by position; block_keys: float32 [S, blocks, K]."""

    raw_keys: torch.Tensor
    block_keys: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class AttentionState:
    """One layer's caches of all slots. Everything is indexed by position: nothing to roll back."""

    cache: Any
    indexer: IndexerState | None


class Attention:
    """The mixer of one layer. `ratio`: tokens a block of the indexer; 0 for dense attention."""

    def __init__(self, w: weights.Attention, state: AttentionState, ratio: int) -> None:
        self._w = w
        self.state = state
        self.ratio = ratio

    def forward(
        self, x: Any, residual: torch.Tensor, shares: torch.Tensor | None, context: Context
    ) -> None:
        """Adds the mixer's output for the input x to the residual, in place."""
        ops, w = context.ops, self._w
        matrices = [w.attn_q, w.attn_k, w.attn_v]
        if w.indexer is not None:
            matrices += [w.indexer.q_proj, w.indexer.k_proj]
        q, k, v, *indexed = ops.project(x, matrices)
        norms, cache, config = (w.attn_q_norm, w.attn_k_norm), self.state.cache, context.config
        shape = config.rms_eps, context.rows
        if w.indexer is None:
            given = (q, k, v, *norms, context.table, cache, None, self.ratio, config.attention)
            out = ops.attention(*given, *shape)
        else:
            state = self.state.indexer
            assert state is not None
            out = ops.sparse_attention(
                (q, k, v, *indexed),
                (*norms, w.indexer.q_norm, w.indexer.k_norm),
                context.table,
                cache,
                state.raw_keys,
                state.block_keys,
                self.ratio,
                config.attention,
                config.indexer,
                *shape,
            )
        ops.project_into(residual, shares, out, w.attn_output)
