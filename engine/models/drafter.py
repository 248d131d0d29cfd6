"""The draft (MTP) layer: from the trunk's residual and the next token to a guess at what follows.

Cell i of its own K/V pairs the trunk's residual R_i with token i+1, at rotary position i, and
predicts token i+2. Its own output residual stands in for R_(i+1) in the next step of a chain.
"""

from __future__ import annotations

import torch

from engine.layers.context import Context
from engine.models.config import ModelConfig
from engine.models.state import StateShape, build_block, cell_tensors, recurrent_tensors
from engine.models.weights import DraftBlock
from engine.ops import Ops
from engine.rows import Rows


class Drafter:
    """The draft layer with its K/V for all slots.

    `pooled_norm`: the norm of R takes one mean square over all streams; otherwise one a stream.
    It decides how many drafts are accepted, never which tokens come out.
    """

    def __init__(
        self,
        w: DraftBlock,
        config: ModelConfig,
        shape: StateShape,
        ops: Ops,
        table: torch.Tensor,
        *,
        pooled_norm: bool,
    ) -> None:
        self._w = w
        self._config = config
        self._ops = ops
        self._table = table
        self._pooled_norm = pooled_norm
        self._block = build_block(w.block, config.draft_layers[0], config, shape, ops)
        self.state = recurrent_tensors((self._block,))
        self.cells = cell_tensors((self._block,))
        self.ids = w.ids
        """The tokens that may be drafted, by the column of their logits; None: all, in order."""
        self.columns = config.vocab_size if w.ids is None else len(w.ids)
        self._ids = None
        if w.ids is not None:
            self._ids = torch.tensor(w.ids, dtype=torch.int64, device=ops.device)

    def forward(
        self, residual: torch.Tensor, tokens: torch.Tensor, rows: Rows
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(the next residual, what the head reads, float32 [R, D]) of pairs (R_i, token i+1).

        residual: float32 [R, C, D], or for an ordinary residual the trunk's `hidden`, [R, D].
        """
        ops, config = self._ops, self._config
        embedded = ops.rms_norm(
            self._w.embed_tokens.rows(tokens), self._w.enorm, config.width, config.rms_eps
        )
        count = rows.count
        flat = residual.reshape(count, -1)
        pool = flat.shape[1] if self._pooled_norm else config.width
        normed = ops.rms_norm(flat, self._w.hnorm, pool, config.rms_eps).view_as(residual)
        context = Context(ops, config, rows, self._table)
        if config.hyper_streams:
            embedded = embedded[:, None].expand_as(normed)
        joined = torch.cat([embedded, normed], dim=-1)
        x = ops.linear(joined.view(-1, joined.shape[-1]), self._w.eh_proj).view_as(residual)
        after = self._block.forward(x, None, None, context)
        if self._w.hc_head is None:
            hidden = ops.rms_norm(after, self._w.shared_head_norm, config.width, config.rms_eps)
            return hidden, hidden
        hc = self._w.hc_head
        hidden, _ = ops.hyper_read(after, hc.norm, hc.down, hc.up, None, config.rms_eps)
        return after, hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 [R, columns], by the trunk's head unless the layer has its own."""
        return self._ops.linear(  # type: ignore[no-any-return]
            hidden, self._w.shared_head_head
        )

    def tokens(self, columns: torch.Tensor) -> torch.Tensor:
        """The tokens of columns of the logits: int64 [R] both."""
        if self._ids is None:
            return columns
        if columns.device.type == "cpu":
            return self._ids[columns]
        from engine.kernels.sampling import ids_at

        return ids_at(self._ids, columns)
