"""The n-gram (PLE) addition to the residual streams of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from engine.layers.context import Context
from engine.models import weights
from engine.models.config import NgramConfig


@dataclass(frozen=True, slots=True, eq=False)
class NgramState:
    """ring: float32 [S, L, C * D], normed gated values by position modulo L."""

    ring: torch.Tensor


class NgramEmbedding:
    """The addition of one block."""

    def __init__(self, w: weights.NgramEmbedding, state: NgramState, config: NgramConfig) -> None:
        self._w = w
        self.state = state
        self._config = config

    def forward(
        self, streams: torch.Tensor, table: Any, table_rows: torch.Tensor, context: Context
    ) -> torch.Tensor:
        """streams + value + convolution of the normed value, float32 [R, C, D].

        `table_rows`: int64 [R, heads], the rows of `table` for this window's n-grams.
        """
        ops, w, eps = context.ops, self._w, context.config.rms_eps
        rows, _, width = streams.shape
        embedding = table.rows(table_rows).view(rows, -1)
        value = ops.ngram_gated_value(
            embedding, streams, w.ple_key, w.ple_value, w.ple_norm_key, w.ple_norm_query, eps
        )
        normed = ops.rms_norm(value, w.ple_norm_conv, width, eps)
        mixed = ops.causal_convolution(
            normed, self.state.ring, w.ple_conv1d, self._config.size, context.rows
        )
        return streams + (value + mixed).view_as(streams)  # type: ignore[no-any-return]
