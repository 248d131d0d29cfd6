"""The trunk of a model: tokens of a window in, residuals and logits out, with all slots' state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.layers.context import Context
from engine.layers.gated_delta_net import GatedDeltaNet
from engine.models.alike import one_of_each
from engine.models.config import ModelConfig
from engine.models.state import StateShape, build_block, cell_tensors, recurrent_tensors
from engine.models.weights import ModelWeights
from engine.ops import Ops
from engine.rows import Rows


class Trunk:
    """All blocks but the draft layer."""

    def __init__(
        self, w: ModelWeights, config: ModelConfig, shape: StateShape, ops: Ops, table: torch.Tensor
    ) -> None:
        self.vocab_size = config.vocab_size
        self._w = w
        self._config = config
        self._ops = ops
        self._table = table
        self._blocks = tuple(
            build_block(block, layer, config, shape, ops)
            for block, layer in zip(w.blocks, config.layers, strict=True)
        )
        history = config.ngram.history if config.ngram else 0
        self._tokens = torch.zeros(
            shape.slots, history + shape.drafts + 1, dtype=torch.int64, device=ops.device
        )
        self.state = [self._tokens, *recurrent_tensors(self._blocks)]
        self.cells = cell_tensors(self._blocks)

    def forward(self, tokens: torch.Tensor, rows: Rows) -> torch.Tensor:
        """The residual after the last block: float32 [R, C, D] or [R, D]. tokens: int64 [R]."""
        context = Context(self._ops, self._config, rows, self._table)
        residual: torch.Tensor = self._w.token_embd.rows(tokens, self._config.hyper_streams)
        ngrams = None
        if self._config.ngram is not None:
            ngrams = self._ops.ngram_rows(tokens, self._tokens, self._config.ngram, rows)
        for block in self._blocks:
            residual = block.forward(residual, self._w.per_layer_token_embd, ngrams, context)
        return residual

    @contextmanager
    def one_block_of_each(self) -> Iterator[None]:
        """For so long, blocks that launch the same kernels are one block."""
        every, self._blocks = self._blocks, one_of_each(self._blocks)
        try:
            yield
        finally:
            self._blocks = every

    def commit(self, kept: Rows) -> None:
        """Applies kept draft rows to the recurrent state; `kept` has spans over the last window."""
        for block in self._blocks:
            if isinstance(block.mixer, GatedDeltaNet):
                block.mixer.commit(kept, self._ops)

    def hidden(self, residual: torch.Tensor) -> torch.Tensor:
        """What the head reads, float32 [R, D]."""
        if self._w.output_hc is None:
            return self._ops.rms_norm(  # type: ignore[no-any-return]
                residual, self._w.output_norm, self._config.width, self._config.rms_eps
            )
        hc = self._w.output_hc
        x, _ = self._ops.hyper_read(residual, hc.norm, hc.down, hc.up, None, self._config.rms_eps)
        return x  # type: ignore[no-any-return]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 [R, vocabulary]."""
        return self._ops.linear(  # type: ignore[no-any-return]
            hidden, self._w.output
        )
