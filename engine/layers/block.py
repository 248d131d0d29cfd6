"""One block: mixer and experts around the residual, which is one stream or several."""

from __future__ import annotations

from typing import Any

import torch

from engine.layers.attention import Attention
from engine.layers.context import Context
from engine.layers.gated_delta_net import GatedDeltaNet
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
        """The residual after this block: float32 [R, C, D], or [R, D] without hyper-connections.

        Written in place: callers give up what they hand over.
        """
        if self.ngram is not None and table_rows is not None:
            self.ngram.forward(residual, table, table_rows, context)
        for connection, norm, part in (
            (self._w.hc_attn, self._w.attn_norm, self.mixer.forward),
            (self._w.hc_ffn, self._w.post_attention_norm, self._experts),
        ):
            ops, eps = context.ops, context.config.rms_eps
            if connection is None:
                part(ops.normed_input(residual, norm, eps), residual, None, context)
            else:
                c = connection
                x, shares = ops.hyper_read(residual, c.norm, c.down, c.up, c.inject, eps)
                part(x, residual, shares, context)
        return residual

    def _experts(
        self, x: Any, residual: torch.Tensor, shares: torch.Tensor | None, context: Context
    ) -> None:
        used = context.config.experts.used
        context.ops.mixture_into(residual, shares, x, self._w.experts, used)
