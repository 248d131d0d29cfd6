"""Drafts of all slots: feeds the draft layer what the trunk computed, and asks it for chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.models.config import ModelConfig
from engine.models.drafter import Drafter
from engine.models.runner import Outcome
from engine.models.state import StateShape
from engine.models.words import SpanRows
from engine.pipeline import DraftAsk
from engine.rows import rows_of
from engine.sampler import probability
from engine.window import Verdict, Window


@dataclass(slots=True)
class _Seat:
    """A slot as the draft layer sees it: `length` committed rows, and the token that it was told
    follows them (None: not told)."""

    length: int = 0
    told: int | None = None


class Drafting:
    """The draft layer's side of a pipeline, operator by operator.

    `last`: float32 [S, C, D] ([S, D] without hyper-connections), the trunk's residual of each
    slot's last committed row; a slot's checkpoint holds it. A chain goes on from `_residuals` (like
    `last`) and `_hiddens`, float32 [S, D], which the layer gave for that row.
    """

    def __init__(
        self, drafter: Drafter, config: ModelConfig, shape: StateShape, device: str
    ) -> None:
        self._drafter = drafter
        self._context = shape.context
        self._device = device
        streams = (config.hyper_streams,) if config.hyper_streams else ()
        self.last = torch.zeros(shape.slots, *streams, config.width, device=device)
        self._residuals = torch.zeros_like(self.last)
        self._hiddens = torch.zeros(shape.slots, config.width, device=device)
        self._seats = [_Seat() for _ in range(shape.slots)]

    def prepare(self) -> None:
        """Does once what the first drafts would have to wait for."""

    @property
    def state(self) -> list[torch.Tensor]:
        """Everything with a slot axis that a checkpoint must copy."""
        return [*self._drafter.state, self.last]

    def go_to(self, slot: int, length: int) -> None:
        """The slot's state is now that of its first `length` tokens."""
        self._seats[slot] = _Seat(length)

    def catch_up(self, window: Window, verdicts: Sequence[Verdict], found: Outcome) -> None:
        """Feeds the draft layer the kept rows of a window, each with the token that follows it.

        A row whose next token is not known yet gets some token: the row is fed again once it is
        known, as is one that the layer was told another token for.
        """
        self._mend(window)
        self._feed(window, verdicts, found)
        for span, verdict in zip(window.spans, verdicts, strict=True):
            seat = self._seats[span.slot]
            seat.length, seat.told = span.start + verdict.kept, verdict.next_token

    def draft(self, asks: Sequence[DraftAsk]) -> Callable[[], list[list[int]]]:
        """See `Pipeline.draft`."""
        drafts: list[list[int]] = [[] for _ in asks]
        running = self._able(asks)
        slots = [asks[index].slot for index in running]
        residual, hidden = self._residuals[slots], self._hiddens[slots]
        while running:
            logits = self._drafter.logits(hidden).cpu().numpy()
            on: list[int] = []
            for row, index in enumerate(running):
                ask, token = asks[index], self._token(int(logits[row].argmax()))
                least = ask.min_probability
                if not least or probability(logits[row]) >= least:
                    drafts[index].append(token)
                    if len(drafts[index]) < ask.count and self._position(ask, drafts[index]):
                        on.append(row)
            running = [running[row] for row in on]
            if running:
                tokens = [drafts[index][-1] for index in running]
                spans = [(asks[i].slot, self._position(asks[i], drafts[i]), 1, 1) for i in running]
                residual, hidden = self._layer(residual[on], tokens, spans)
        return lambda: drafts

    def _token(self, column: int) -> int:
        """The token of a column of the draft layer's logits."""
        ids = self._drafter.ids
        return column if ids is None else ids[column]

    def _able(self, asks: Sequence[DraftAsk]) -> list[int]:
        """Those whose slot knows its next token."""
        return [i for i, ask in enumerate(asks) if self._seats[ask.slot].told is not None]

    def _position(self, ask: DraftAsk, drafts: Sequence[int]) -> int:
        """Where the last of `drafts` is fed to the layer; 0 behind the context's end."""
        position = self._seats[ask.slot].length - 1 + len(drafts)
        return position if position < self._context else 0

    def _layer(
        self, residual: torch.Tensor, tokens: Sequence[int], spans: list[SpanRows]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.tensor(tokens, device=self._device)
        after, hidden = self._drafter.forward(residual, ids, rows_of(spans, self._device))
        return after, values_of(hidden)

    def _mend(self, window: Window) -> None:
        """Feeds rows again that the layer was told another next token for."""
        spans = [
            span
            for span in window.spans
            if span.start
            and self._seats[span.slot].length == span.start
            and self._seats[span.slot].told != span.tokens[0]
        ]
        if spans:
            self._layer(
                self.last[[span.slot for span in spans]],
                [span.tokens[0] for span in spans],
                [(span.slot, span.start - 1, 1, 1) for span in spans],
            )

    def _feed(self, window: Window, verdicts: Sequence[Verdict], found: Outcome) -> None:
        rows: list[int] = []
        tokens: list[int] = []
        spans: list[SpanRows] = []
        ends: list[int] = []
        first = 0
        for span, verdict in zip(window.spans, verdicts, strict=True):
            kept = verdict.kept
            rows += range(first, first + kept)
            tokens += (*span.tokens[1:kept], verdict.next_token or 0)
            spans.append((span.slot, span.start, kept, kept))
            ends.append(len(rows) - 1)
            first += len(span.tokens)
        residual = found.residual[rows]
        after, hidden = self._layer(residual, tokens, spans)
        slots = [span.slot for span in window.spans]
        self.last[slots] = residual[ends]
        self._residuals[slots], self._hiddens[slots] = after[ends], hidden[ends]


def values_of(x: Any) -> torch.Tensor:
    """The floats of what matrices multiply."""
    return x if isinstance(x, torch.Tensor) else x.values
