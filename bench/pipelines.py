"""Pipelines that are measured: emptied, made to look long, and given drafts that are accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Protocol

from engine.engine import Engine
from engine.logits import Logits
from engine.pipeline import Cells, Checkpoint, DraftAsk, Pipeline
from engine.window import Verdict, Window


class MeasuredPipeline(Pipeline, Protocol):
    """A pipeline whose draft layer can be left out for a while, so that one loading serves all
    measurements."""

    def pause_drafts(self, paused: bool) -> None:
        """Leaves the draft layer out of windows, or takes it in again. Slots must be empty."""


def clear_all(pipeline: Pipeline) -> None:
    """Empty every slot, so that a new engine may take the pipeline over."""
    for slot in range(pipeline.slots):
        pipeline.clear(slot)


def pretend(engine: Engine, pipeline: Pipeline, slot: int, tokens: Sequence[int]) -> None:
    """Makes a free slot look as if it had read `tokens`: what it says is of no use, and it costs as
    much. The cells of keys and values that nobody wrote are those of whoever was there before."""
    pipeline.restore(slot, replace(pipeline.save(slot), length=len(tokens)))
    seat = engine.slots[slot]
    seat.tokens = list(tokens)
    seat.computed = len(tokens)


class InjectedDrafts:
    """A pipeline whose drafts are right as often as it is told, whatever its draft layer says.

    The layer works as ever, and its drafts are thrown away. `known` has every slot's tokens, from
    the prompt's first on, as they come without drafts: exact windows make them come again. Each
    draft is right with the probability `acceptance`; the ones behind a wrong one are wrong.
    """

    def __init__(
        self, pipeline: Pipeline, known: Mapping[int, Sequence[int]], acceptance: float
    ) -> None:
        self._pipeline = pipeline
        self._known = known
        self._acceptance = acceptance
        self._random = Random(1)
        self._lengths: dict[int, int] = {}
        self.slots = pipeline.slots
        self.max_context = pipeline.max_context
        self.vocab_size = pipeline.vocab_size
        self.can_draft = pipeline.can_draft
        self.runs_ahead = pipeline.runs_ahead
        self.checkpoint_bytes = pipeline.checkpoint_bytes

    def forward(self, window: Window) -> Callable[[], Logits]:
        """See `Pipeline.forward`."""
        return self._pipeline.forward(window)

    def commit(self, window: Window, verdicts: Sequence[Verdict]) -> None:
        """See `Pipeline.commit`."""
        for span, verdict in zip(window.spans, verdicts, strict=True):
            self._lengths[span.slot] = span.start + verdict.kept
        self._pipeline.commit(window, verdicts)

    def draft(self, asks: Sequence[DraftAsk]) -> Callable[[], list[list[int]]]:
        """See `Pipeline.draft`."""
        made = self._pipeline.draft([replace(ask, min_probability=0.0) for ask in asks])
        drafts = [self._drafts(ask.slot, ask.count) for ask in asks]

        def instead() -> list[list[int]]:
            made()
            return drafts

        return instead

    def clear(self, slot: int) -> None:
        """See `Pipeline.clear`."""
        self._pipeline.clear(slot)

    def save(self, slot: int) -> Checkpoint:
        """See `Pipeline.save`."""
        return self._pipeline.save(slot)

    def restore(self, slot: int, checkpoint: Checkpoint) -> None:
        """See `Pipeline.restore`."""
        self._pipeline.restore(slot, checkpoint)

    def set_aside(self, checkpoint: Checkpoint) -> Checkpoint:
        """See `Pipeline.set_aside`."""
        return self._pipeline.set_aside(checkpoint)

    def prepare_parking(self, size_bytes: int) -> None:
        """See `Pipeline.prepare_parking`."""
        self._pipeline.prepare_parking(size_bytes)

    def cell_bytes(self, length: int) -> int:
        """See `Pipeline.cell_bytes`."""
        return self._pipeline.cell_bytes(length)

    def take_out(self, slot: int, length: int) -> Cells:
        """See `Pipeline.take_out`."""
        return self._pipeline.take_out(slot, length)

    def put_in(self, slot: int, cells: Cells, length: int) -> None:
        """See `Pipeline.put_in`."""
        self._pipeline.put_in(slot, cells, length)

    def copy_cells(self, source: int, target: int, length: int) -> None:
        """See `Pipeline.copy_cells`."""
        self._pipeline.copy_cells(source, target, length)

    def idle_bytes(self) -> int:
        """See `Pipeline.idle_bytes`."""
        return self._pipeline.idle_bytes()

    def _drafts(self, slot: int, count: int) -> list[int]:
        # The token behind the computed ones is known to the engine: drafts follow it.
        first = self._lengths[slot] + 1
        right = list(self._known[slot][first : first + count])
        kept = 0
        while kept < len(right) and self._random.random() < self._acceptance:
            kept += 1
        return [
            token if index < kept else (token + 1) % self.vocab_size
            for index, token in enumerate(right)
        ]
