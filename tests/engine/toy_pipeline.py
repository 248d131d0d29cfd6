"""A small model for the engine's tests: exact, deterministic, and strict about the contract.

The logits of a row are a function of every token of its slot up to it, by two ways: a recurrent
state, which must be committed and rolled back, and one cell a position, which later rows overwrite.
Whole numbers carry both, so equal histories give equal bits. Any breach of the contract of
`engine.pipeline.Pipeline` is an `AssertionError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from engine.logits import HostLogits
from engine.pipeline import Cells, Checkpoint, DraftAsk
from engine.window import Span, Verdict, Window

VOCAB = 61
_PRIME = 2**61 - 1


@lru_cache(maxsize=65536)
def _logits(key: int) -> np.ndarray:
    rng = np.random.Generator(np.random.Philox(key=key))
    row = 2 * rng.standard_normal(VOCAB, dtype=np.float32)
    row.flags.writeable = False
    return row


def _advance(state: int, token: int, position: int) -> int:
    return (state * 6364136223846793005 + (token + 1) * 1442695040888963407 + position) % _PRIME


def _row_key(state: int, cells: Sequence[int]) -> int:
    seen = 0
    for token in cells:
        seen = (seen * 31 + token + 1) % _PRIME
    return (state ^ seen) % _PRIME


def toy_logits(tokens: Sequence[int]) -> np.ndarray:
    """float32 [vocab], the logits behind `tokens`, without any slot: what a fresh model says."""
    state = 0
    for position, token in enumerate(tokens):
        state = _advance(state, token, position)
    return _logits(_row_key(state, tokens))


@dataclass
class _Seat:
    state: int = 0
    length: int = 0
    cells: list[int] = field(default_factory=list)
    next_token: int | None = None
    """What the draft layer may continue; None: nothing, or it was asked already."""
    owner: object = field(default_factory=object)
    """Of the cells: checkpoints go with them from slot to slot."""
    whole: bool = True
    """False between `put_in` and the `restore` that must follow."""


class ToyPipeline:
    """`accuracy` of the drafts are right; `fail_on` is a token whose row has NaN logits."""

    vocab_size = VOCAB
    checkpoint_bytes = 100

    def __init__(
        self,
        slots: int = 3,
        max_context: int = 96,
        can_draft: bool = True,
        accuracy: float = 0.7,
        fail_on: int | None = None,
        runs_ahead: bool = False,
    ) -> None:
        self.slots = slots
        self.max_context = max_context
        self.can_draft = can_draft
        self.runs_ahead = runs_ahead
        self.windows: list[Window] = []
        self._accuracy = accuracy
        self._fail_on = fail_on
        self._seats = [_Seat() for _ in range(slots)]
        self._pending: tuple[Window, list[list[int]]] | None = None

    def forward(self, window: Window) -> Callable[[], HostLogits]:
        assert self._pending is None, "the window before was not committed"
        assert window.spans, "an empty window"
        slots = [span.slot for span in window.spans]
        assert len(set(slots)) == len(slots), "two spans of one slot"
        rows, states = [], []
        for span in window.spans:
            logits, trail = self._run(span)
            rows += logits
            states.append(trail)
        self._pending = (window, states)
        self.windows.append(window)
        logits = HostLogits(np.stack(rows) if rows else np.empty((0, VOCAB), np.float32))
        return lambda: logits

    def commit(self, window: Window, verdicts: Sequence[Verdict]) -> None:
        assert self._pending is not None, "nothing to commit"
        pending, states = self._pending
        assert pending is window, "another window"
        assert len(verdicts) == len(window.spans)
        for span, verdict, trail in zip(window.spans, verdicts, states, strict=True):
            assert span.certain <= verdict.kept <= len(span.tokens)
            assert verdict.next_token is None or 0 <= verdict.next_token < VOCAB
            seat = self._seats[span.slot]
            seat.state = trail[verdict.kept - 1]
            seat.length = span.start + verdict.kept
            seat.next_token = verdict.next_token
        self._pending = None

    def draft(self, asks: Sequence[DraftAsk]) -> Callable[[], list[list[int]]]:
        self._settled()
        assert self.can_draft, "no draft layer"
        assert asks, "no asks"
        assert len({ask.slot for ask in asks}) == len(asks)
        drafts = [self._drafts(ask) for ask in asks]
        return lambda: drafts

    def clear(self, slot: int) -> None:
        self._not_under_way(slot)
        self._seats[slot] = _Seat()

    def save(self, slot: int) -> Checkpoint:
        self._not_under_way(slot)
        seat = self._seats[slot]
        assert seat.length > 0, "nothing to save"
        return Checkpoint(seat.length, (seat.owner, seat.state, tuple(seat.cells[: seat.length])))

    def restore(self, slot: int, checkpoint: Checkpoint) -> None:
        self._not_under_way(slot)
        owner, state, tokens = checkpoint.state
        seat = self._seats[slot]
        assert owner is seat.owner, "a checkpoint of another conversation"
        assert tuple(seat.cells[: checkpoint.length]) == tokens, "the prefix was overwritten"
        seat.state, seat.length, seat.next_token = state, checkpoint.length, None
        seat.whole = True

    def set_aside(self, checkpoint: Checkpoint) -> Checkpoint:
        return Checkpoint(checkpoint.length, checkpoint.state)

    def prepare_parking(self, size_bytes: int) -> None:
        assert size_bytes >= 0

    def cell_bytes(self, length: int) -> int:
        return 4 * length

    def take_out(self, slot: int, length: int) -> Cells:
        seat = self._seats[slot]
        assert seat.whole
        assert 0 < length <= seat.length, "not committed"
        return Cells(length, (seat.owner, tuple(seat.cells[:length])))

    def put_in(self, slot: int, cells: Cells, length: int) -> None:
        self._not_under_way(slot)
        assert 0 < length <= cells.length
        owner, tokens = cells.state
        self._seats[slot] = _Seat(cells=list(tokens[:length]), owner=owner, whole=False)

    def copy_cells(self, source: int, target: int, length: int) -> None:
        self.put_in(target, self.take_out(source, length), length)

    def idle_bytes(self) -> int:
        return 0

    def _run(self, span: Span) -> tuple[list[np.ndarray], list[int]]:
        self._check(span)
        seat = self._seats[span.slot]
        seat.next_token = None
        state, rows, trail = seat.state, [], []
        for index, token in enumerate(span.tokens):
            position = span.start + index
            seat.cells[position:] = [token]
            state = _advance(state, token, position)
            trail.append(state)
            if index >= span.logits_from:
                row = _logits(_row_key(state, seat.cells))
                rows.append(row * np.nan if token == self._fail_on else row)
        return rows, trail

    def _check(self, span: Span) -> None:
        seat, rows = self._seats[span.slot], len(span.tokens)
        assert seat.whole, "cells without a state"
        assert span.start == seat.length, f"row {span.start} follows {seat.length} rows"
        assert span.start + rows <= self.max_context, "past the context"
        assert all(0 <= token < VOCAB for token in span.tokens)
        assert 1 <= span.certain <= rows
        assert 0 <= span.logits_from <= rows
        assert not span.drafts or span.logits_from < span.certain, "a draft without a judge"

    def _drafts(self, ask: DraftAsk) -> list[int]:
        seat = self._seats[ask.slot]
        assert ask.count > 0
        assert 0 <= ask.min_probability <= 1
        assert seat.next_token is not None, "nothing to continue, or asked twice"
        tokens = [*seat.cells[: seat.length], seat.next_token]
        seat.next_token = None
        drafts: list[int] = []
        for _ in range(ask.count):
            row = toy_logits(tokens)
            luck = np.random.Generator(np.random.Philox(key=len(tokens) * 64 + tokens[-1])).random()
            drafts.append(int(np.argmax(row)) if luck < self._accuracy else int(np.argmin(row)))
            tokens.append(drafts[-1])
            if luck < ask.min_probability:
                break
        return drafts

    def _not_under_way(self, slot: int) -> None:
        spans = self._pending[0].spans if self._pending else ()
        assert slot not in {span.slot for span in spans}, "between a window and its commit"

    def _settled(self) -> None:
        assert self._pending is None, "between a window and its commit"
