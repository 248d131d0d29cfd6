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
    ) -> None:
        """streams + value + convolution of the normed value, float32 [R, C, D], in place.

        `table_rows`: int64 [R, heads], the rows of `table` for this window's n-grams.
        """
        ops, w, eps = context.ops, self._w, context.config.rms_eps
        embedding = table.rows(table_rows).view(streams.shape[0], -1)
        norms = w.ple_norm_key, w.ple_norm_query, w.ple_norm_conv
        value, normed = ops.ngram_gated_value(
            embedding, streams, w.ple_key, w.ple_value, *norms, eps
        )
        ops.convolve_into(
            streams.view_as(value), value, normed, self.state.ring, w.ple_conv1d,
            self._config.size, context.rows,
        )  # fmt: skip
