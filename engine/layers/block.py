"""One block: mixer and experts around the residual, which is one stream or several."""

from __future__ import annotations

from typing import Any

import torch

from engine.layers.attention import Attention
from engine.layers.context import Context
from engine.layers.gated_delta_net import GatedDeltaNet
from engine.layers.moe import mixture_of_experts
from engine.layers.ngram_embedding import NgramEmbedding
from engine.models import weights


class Block:
    """One layer of the trunk, or the draft layer."""

    def __init__(
        self,
        w: weights.Block,
        mixer: GatedDeltaNet | Attention,
        ngram: NgramEmbedding | None,
    ) -> None:
        self._w = w
        self.mixer = mixer
        self.ngram = ngram

    def forward(
        self, residual: torch.Tensor, table: Any, table_rows: torch.Tensor | None, context: Context
    ) -> torch.Tensor:
        """The residual after this block: float32 [R, C, D], or [R, D] without hyper-connections."""
        if self.ngram is not None and table_rows is not None:
            residual = self.ngram.forward(residual, table, table_rows, context)
        if self._w.hc_attn is None:
            return self._ordinary(residual, context)
        return self._hyper(residual, context)

    def _hyper(self, streams: torch.Tensor, context: Context) -> torch.Tensor:
        ops, eps = context.ops, context.config.rms_eps
        streams = streams.clone()  # written in place below; the caller's tensor stays
        for connection in (self._w.hc_attn, self._w.hc_ffn):
            assert connection is not None
            x, weight = ops.hyper_read(
                streams, connection.norm, connection.down, connection.up, connection.inject, eps
            )
            if connection is self._w.hc_attn:
                y = self.mixer.forward(x, context)
            else:
                y = mixture_of_experts(self._w.experts, x, context)
            ops.hyper_write(streams, weight, y)
        return streams

    def _ordinary(self, residual: torch.Tensor, context: Context) -> torch.Tensor:
        ops, config = context.ops, context.config
        x = ops.rms_norm(residual, self._w.attn_norm, config.width, config.rms_eps)
        residual = residual + self.mixer.forward(x, context)
        x = ops.rms_norm(residual, self._w.post_attention_norm, config.width, config.rms_eps)
        return residual + mixture_of_experts(self._w.experts, x, context)
