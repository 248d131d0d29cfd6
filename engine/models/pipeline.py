"""A whole model on one device behind `engine/pipeline.py`'s protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from engine.logits import Logits
from engine.models.asks import Ask
from engine.models.cells import SlotCells
from engine.models.config import ModelConfig
from engine.models.drafter import Drafter
from engine.models.drafting import Drafting
from engine.models.graphs import recorder_for
from engine.models.runner import EagerRunner, Outcome, Runner
from engine.models.state import EagerState, StateShape
from engine.models.trunk import Trunk
from engine.models.weights import ModelWeights
from engine.models.words import SpanRows
from engine.ops import Ops
from engine.pipeline import Cells, Checkpoint, DraftAsk
from engine.window import Span, Verdict, Window

LONGEST = 1024
"""Rows of a window."""


class DevicePipeline:
    """Weights and all slots' state on one device."""

    def __init__(
        self,
        w: ModelWeights,
        config: ModelConfig,
        draft_config: ModelConfig | None,
        shape: StateShape,
        ops: Ops,
        *,
        pooled_norm: bool = False,
        longest: int = LONGEST,
        prompt_graphs: bool = True,
    ) -> None:
        """longest: rows of the longest window whose kernels `warm_up` compiles. prompt_graphs:
        whether short prompts are read in graphs on a card."""
        self.slots = shape.slots
        recorder = recorder_for(ops.device)
        if recorder:  # one slot more, for rows of graphs that belong to nobody
            shape = replace(shape, slots=shape.slots + 1)
        self.max_context = shape.context
        self.vocab_size = config.vocab_size
        self.can_draft = w.draft is not None and shape.drafts > 0
        a = config.attention
        table = ops.rotary_table(shape.context, a.rotary, a.freq_base)
        self.trunk = Trunk(w, config, shape, ops, table)
        self.drafter: Drafter | None = None
        if w.draft is not None and draft_config is not None and shape.drafts > 0:
            self.drafter = Drafter(
                w.draft, draft_config, shape, ops, table, pooled_norm=pooled_norm
            )
        self.device = ops.device
        eager = EagerRunner(
            self.trunk, ops.device, hyper=config.hyper_streams > 0, drafts=self.drafter is not None
        )
        self._runner: Runner = eager
        self._recorder = recorder
        self.runs_ahead = recorder is not None
        self._drafting: Drafting | None = None
        self._launches: list[Callable[[], None]] = []
        if recorder:
            from engine.models.graph_drafting import GraphDrafting
            from engine.models.graph_runner import GraphRunner

            longest = min(longest, shape.context)
            runner = GraphRunner(eager, recorder, self.slots, longest, prompts=prompt_graphs)
            self._runner = runner
            self._launches.append(runner.launches)
            if self.drafter is not None:
                self._drafting = drafting = GraphDrafting(
                    self.drafter,
                    config,
                    shape,
                    ops.device,
                    recorder,
                    runner.captured,
                    runner.sizes,
                    longest,
                )
                self._launches.append(drafting.launches)
        elif self.drafter is not None:
            self._drafting = Drafting(self.drafter, config, shape, ops.device)
        self._lengths = [0] * shape.slots
        tensors = [*self.trunk.state, *(self._drafting.state if self._drafting else [])]
        self._state: Any = EagerState(tensors)
        if recorder:
            from engine.kernels.slot_state import SlotState

            self._state = SlotState(tensors, shape.card_checkpoints, shape.checkpoints)
            self._launches.append(self._state.launches)
        self.checkpoint_bytes: int = self._state.size_bytes
        cells = [*self.trunk.cells, *(self.drafter.cells if self.drafter else [])]
        self._cells = SlotCells(cells, shape.context, ops.device)
        self._found: Outcome | None = None

    def launches(self) -> None:
        """Whatever windows, drafts and slots launch on a card, once each."""
        with self.trunk.one_block_of_each():
            for launch in self._launches:
                launch()

    def warm_up(self, progress: Callable[[int, int], None] = lambda done, of: None) -> None:
        """Runs every operator once, in slot 0, which is empty afterwards.

        The first run on a machine compiles them, so that no request has to wait for it.
        """
        if self._launches:
            from engine.kernels.compile_ahead import compile_ahead

            compile_ahead(self.launches, progress=progress)
        self._state.prepare()
        self._runner.prepare()
        if self._drafting is not None:
            self._drafting.prepare()
        if self._recorder:
            self._recorder.give_back()
        window = Window((Span(0, 0, (0, 0), 1, 0),))
        self.forward(window)()
        self.commit(window, [Verdict(2, 0)])
        if self.can_draft:
            self.draft([DraftAsk(0, 2, 0.0)])()
        self.clear(0)

    def forward(self, window: Window) -> Callable[[], Logits]:
        """See `Pipeline.forward`."""
        tokens: list[int] = []
        spans: list[SpanRows] = []
        wanted: list[int] = []
        asks: list[Ask] = []
        for slot, start, own, certain, logits_from, sampling in window.spans:
            first, count = len(tokens), len(own)
            tokens += own
            spans.append((slot, start, count, certain))
            rows = range(first + logits_from, first + count)
            wanted += rows
            if sampling is not None and not sampling.plain and not sampling.logit_bias:
                asks += [Ask(row, row + start + 1 - first, sampling) for row in rows]
        found = self._found = self._runner.forward(tokens, spans, wanted, asks)

        def logits() -> Logits:
            self._runner.wait()
            return found.logits

        return logits

    def commit(self, window: Window, verdicts: Sequence[Verdict]) -> None:
        """See `Pipeline.commit`."""
        lines: list[list[int]] = []
        first = 0
        for span, verdict in zip(window.spans, verdicts, strict=True):
            more = verdict.kept - span.certain
            if more > 0:
                start = span.start + span.certain
                lines.append([span.slot, first + span.certain, more, start, more])
            first += len(span.tokens)
            self._lengths[span.slot] = span.start + verdict.kept
        if lines:
            self._runner.commit(lines)
        if self._drafting is not None and self.can_draft:
            assert self._found is not None
            self._drafting.catch_up(window, verdicts, self._found)

    def draft(self, asks: Sequence[DraftAsk]) -> Callable[[], list[list[int]]]:
        """See `Pipeline.draft`."""
        assert self._drafting is not None, "drafts asked of a pipeline without a draft layer"
        return self._drafting.draft(asks)

    def pause_drafts(self, paused: bool) -> None:
        """Leaves the draft layer out of windows, or takes it in again. Slots must be empty."""
        self.can_draft = self.drafter is not None and not paused

    def clear(self, slot: int) -> None:
        """See `Pipeline.clear`."""
        self._state.clear(slot)
        self._go_to(slot, 0)

    def save(self, slot: int) -> Checkpoint:
        """See `Pipeline.save`."""
        return Checkpoint(self._lengths[slot], self._state.save(slot))

    def restore(self, slot: int, checkpoint: Checkpoint) -> None:
        """See `Pipeline.restore`."""
        self._state.restore(slot, checkpoint.state)
        self._go_to(slot, checkpoint.length)

    def set_aside(self, checkpoint: Checkpoint) -> Checkpoint:
        """See `Pipeline.set_aside`."""
        return Checkpoint(checkpoint.length, self._state.set_aside(checkpoint.state))

    def prepare_parking(self, size_bytes: int) -> None:
        """See `Pipeline.prepare_parking`."""
        if self._recorder:
            self._state.prepare_aside(size_bytes // 2)
            self._cells.prepare(size_bytes // 2)

    def cell_bytes(self, length: int) -> int:
        """See `Pipeline.cell_bytes`."""
        return self._cells.size_bytes(length)

    def take_out(self, slot: int, length: int) -> Cells:
        """See `Pipeline.take_out`."""
        return Cells(length, self._cells.save(slot, length))

    def put_in(self, slot: int, cells: Cells, length: int) -> None:
        """See `Pipeline.put_in`."""
        self._cells.load(slot, length, cells.state, cells.length)

    def copy_cells(self, source: int, target: int, length: int) -> None:
        """See `Pipeline.copy_cells`."""
        self._cells.copy(source, target, length)

    def idle_bytes(self) -> int:
        """See `Pipeline.idle_bytes`."""
        return self._cells.idle_bytes

    def _go_to(self, slot: int, length: int) -> None:
        self._lengths[slot] = length
        if self._drafting is not None:
            self._drafting.go_to(slot, length)
