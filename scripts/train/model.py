"""Both architectures with their draft block, as functions of a dictionary of GGUF tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as fn
from torch import Tensor

from scripts.train.geometry import Geometry
from scripts.train.indexer import block_scores, selection, selection_loss
from scripts.train.layers import (
    Weights,
    attend,
    attention_inputs,
    delta_mixer,
    experts,
    linear,
    per_layer,
    read_streams,
    rms,
)


@dataclass(frozen=True, slots=True)
class Output:
    """What a forward pass yields; `hidden` is what the draft block reads."""

    logits: Tensor  # [B, T, V]
    draft_logits: Tensor | None  # [B, T, V]: row i, from hidden i and token i+1
    hidden: Tensor  # [B, T, S, D] streams, or [B, T, D] after output_norm
    balance: Tensor  # scalar, load balance of all routers
    index_loss: Tensor  # scalar, zero without rows


class Model:
    """Runs a geometry over tensors given at each call, so that they can be rounded first."""

    def __init__(
        self, geometry: Geometry, compiler: Callable[[Any], Any] | None = None, exact: bool = True
    ) -> None:
        self.geometry = geometry
        self.exact = exact
        wrap = compiler if compiler is not None else (lambda function: function)
        self._mixer, self._feed = wrap(self._run_mixer), wrap(self._run_feed)
        self._per_layer, self._read = wrap(per_layer), wrap(read_streams)

    def forward(
        self,
        w: Weights,
        tokens: Tensor,
        following: Tensor | None = None,
        *,
        select: bool = True,
        rows: Tensor | None = None,
    ) -> Output:
        """Logits of tokens [B, T], and the draft's where the `following` tokens [B, T] are given.

        `select` False makes all attention dense; `rows` are the queries that train the indexers.
        """
        g = self.geometry
        embedded = fn.embedding(tokens, w["token_embd.weight"]).float()
        stream = embedded.unsqueeze(-2).expand(-1, -1, g.streams, -1) if g.wide else embedded
        losses = []
        for number in range(g.blocks):
            local = block_weights(w, number)
            if g.wide and number == g.ple_block:
                grams = fn.embedding(ngram_rows(tokens, g), w["per_layer_token_embd.weight"])
                stream = stream + self._per_layer(stream, grams.flatten(-2), local, g)
            stream, loss = self._block(stream, local, g.attends(number), select, rows)
            losses.append(loss)
        last, hidden = self._finish(stream, w)
        logits = linear(last, w["output.weight"])
        draft_logits = None
        if following is not None:
            ahead = fn.embedding(following, w["token_embd.weight"]).float()
            draft_logits, _, loss = self.draft(w, hidden, ahead, select, rows)
            losses.append(loss)
        total = torch.stack(losses).sum(0)
        return Output(logits, draft_logits, hidden, total[0], total[1])

    def draft(
        self,
        w: Weights,
        hidden: Tensor,
        following: Tensor,
        select: bool = True,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the token after next, the next hidden, and the losses.

        hidden: [B, T, S, D] or [B, T, D] of position i; following: [B, T, D], embedding of i+1.
        """
        g = self.geometry
        local = block_weights(w, g.blocks)
        e = rms(following, local["nextn.enorm.weight"], g.eps)
        gamma = local["nextn.hnorm.weight"]
        h = rms(hidden, gamma.view(g.streams, -1) if g.wide else gamma, g.eps)
        left, right = local["nextn.eh_proj.weight"].chunk(2, dim=-1)
        first = linear(e, left)
        stream = linear(h, right) + (first.unsqueeze(-2) if g.wide else first)
        stream, loss = self._block(stream, local, True, select, rows)
        if g.wide:
            last, _ = self._read(stream, local, "nextn.hc_head", g)
        else:
            last = stream = rms(stream, local["nextn.shared_head_norm.weight"], g.eps)
        return linear(last, w["output.weight"]), stream, loss

    def _block(
        self, stream: Tensor, w: Weights, attends: bool, select: bool, rows: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        stream, loss = self._mixer(stream, w, attends, select, rows)
        stream, balance = self._feed(stream, w)
        return stream, torch.stack([balance, loss])

    def _run_mixer(
        self, stream: Tensor, w: Weights, attends: bool, select: bool, rows: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        g = self.geometry
        x, inject = self._enter(stream, w, "hc_attn", "attn_norm.weight")
        loss = torch.zeros((), device=x.device)
        if not attends:
            return self._leave(stream, delta_mixer(x, w, g), inject), loss
        q, k, v, gate = attention_inputs(x, w, g)
        mask = None
        if g.wide and (select or rows is not None):
            scores = block_scores(x.detach(), w, g)
            if select:
                mask = selection(scores.detach(), g, self.exact)
            if rows is not None:
                loss = selection_loss(scores, q, k, rows, g)
        return self._leave(stream, attend(q, k, v, gate, w, mask), inject), loss

    def _run_feed(self, stream: Tensor, w: Weights) -> tuple[Tensor, Tensor]:
        x, inject = self._enter(stream, w, "hc_ffn", "post_attention_norm.weight")
        out, balance = experts(x, w, self.geometry)
        return self._leave(stream, out, inject), balance

    def _enter(
        self, stream: Tensor, w: Weights, module: str, norm: str
    ) -> tuple[Tensor, Tensor | None]:
        if self.geometry.wide:
            return read_streams(stream, w, module, self.geometry)
        return rms(stream, w[norm], self.geometry.eps), None

    def _leave(self, stream: Tensor, out: Tensor, inject: Tensor | None) -> Tensor:
        if inject is None:
            return stream + out
        return stream + inject.unsqueeze(-1) * out.unsqueeze(-2)

    def _finish(self, stream: Tensor, w: Weights) -> tuple[Tensor, Tensor]:
        """The head's input, and what the draft block gets."""
        if self.geometry.wide:
            return self._read(stream, w, "output_hc", self.geometry)[0], stream
        last = rms(stream, w["output_norm.weight"], self.geometry.eps)
        return last, last


def block_weights(w: Weights, number: int) -> dict[str, Tensor]:
    """The tensors of one block under their short names."""
    prefix = f"blk.{number}."
    return {name[len(prefix) :]: value for name, value in w.items() if name.startswith(prefix)}


def ngram_rows(tokens: Tensor, geometry: Geometry) -> Tensor:
    """Row of every n-gram head in the shared table, [B, T, heads]."""
    eos, multipliers = geometry.ple_eos, geometry.ple_multipliers()
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    ends = torch.where(tokens == eos, positions, -1).cummax(1).values
    start = fn.pad(ends[:, :-1], (1, 0), value=-1) + 1
    mixed, heads, offset = tokens * multipliers[0], [], 0
    sizes = geometry.ple_sizes()
    for back in range(1, geometry.ngram):
        shifted = fn.pad(tokens[:, :-back], (back, 0), value=eos)
        shifted = torch.where(positions - back >= start, shifted, eos)
        mixed = mixed ^ (shifted * multipliers[back])
        for size in sizes[(back - 1) * geometry.ple_heads : back * geometry.ple_heads]:
            heads.append(mixed % size + offset)
            offset += size
    return torch.stack(heads, dim=-1)
