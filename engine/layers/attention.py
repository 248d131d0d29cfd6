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
        self._ratio = ratio

    def forward(self, x: torch.Tensor, context: Context) -> torch.Tensor:
        """float32 [R, D] -> [R, D]."""
        ops, w = context.ops, self._w
        selected = self._select(x, context)
        out = ops.attention(
            ops.linear(x, w.attn_q),
            ops.linear(x, w.attn_k),
            ops.linear(x, w.attn_v),
            w.attn_q_norm,
            w.attn_k_norm,
            context.table,
            self.state.cache,
            selected,
            self._ratio,
            context.config.attention,
            context.config.rms_eps,
            context.rows,
        )
        return ops.linear(out, w.attn_output)  # type: ignore[no-any-return]

    def _select(self, x: torch.Tensor, context: Context) -> torch.Tensor | None:
        w, state, config = self._w.indexer, self.state.indexer, context.config.indexer
        if w is None or state is None or config is None:
            return None
        ops = context.ops
        return ops.select_blocks(  # type: ignore[no-any-return]
            ops.linear(x, w.q_proj),
            ops.linear(x, w.k_proj),
            w.q_norm,
            w.k_norm,
            context.table,
            state.raw_keys,
            state.block_keys,
            self._ratio,
            config,
            context.config.rms_eps,
            context.rows,
        )
