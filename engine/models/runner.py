"""Runs a window's rows through the trunk, operator by operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from engine.logits import HostLogits, Logits
from engine.models.asks import Ask
from engine.models.trunk import Trunk
from engine.models.words import SpanRows, Words
from engine.rows import Rows, rows_of


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a window gave, until the next one runs.

    residual: float32 [R, C, D] for the draft layer ([R, D], normed, without hyper-connections);
    rows behind the window's mean nothing. words: the rows' place in memory, if the residual of
    windows with as many rows always lies in the same place.
    """

    residual: torch.Tensor
    logits: Logits
    words: Words | None = None


class Runner(Protocol):
    """One window at a time; `commit` speaks of the last one."""

    def forward(
        self, tokens: list[int], spans: list[SpanRows], wanted: list[int], asks: Sequence[Ask]
    ) -> Outcome:
        """`wanted`: the rows whose logits are asked for, ascending; `asks`: more about some."""

    def wait(self) -> None:
        """Until the window is done: its logits may be read."""

    def commit(self, lines: list[list[int]]) -> None:
        """Applies kept draft rows; `lines` are spans over the last window as in `Rows.spans`."""

    def prepare(self) -> None:
        """Does once what the first windows would have to wait for."""


class EagerRunner:
    """Launches every operator. `drafts`: the draft layer reads every row."""

    def __init__(self, trunk: Trunk, device: str, *, hyper: bool, drafts: bool) -> None:
        self.trunk = trunk
        self.device = device
        self._hyper = hyper
        self._drafts = drafts

    def forward(
        self, tokens: list[int], spans: list[SpanRows], wanted: list[int], asks: Sequence[Ask]
    ) -> Outcome:
        """See `Runner.forward`."""
        ids = torch.tensor(tokens, device=self.device)
        residual, hidden = self.compute(ids, rows_of(spans, self.device), wanted)
        if not wanted:
            return Outcome(residual, HostLogits(np.empty((0, self.trunk.vocab_size), np.float32)))
        return Outcome(residual, HostLogits(self.trunk.logits(hidden).cpu().numpy()))

    def compute(
        self, ids: torch.Tensor, rows: Rows, wanted: list[int] | torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Any]:
        """What the draft layer reads, and what the head reads of the `wanted` rows (None: all)."""
        residual = self.trunk.forward(ids, rows)
        if self._hyper or not self._drafts:
            return residual, self.trunk.hidden(residual if wanted is None else residual[wanted])
        hidden = self.trunk.hidden(residual)
        return hidden, hidden if wanted is None else hidden[wanted]

    def wait(self) -> None:
        """See `Runner.wait`."""

    def commit(self, lines: list[list[int]]) -> None:
        """See `Runner.commit`."""
        spans = torch.tensor(lines, dtype=torch.int32, device=self.device)
        empty = spans.new_empty(0)
        self.trunk.commit(Rows(spans, empty, empty))

    def prepare(self) -> None:
        """See `Runner.prepare`."""
