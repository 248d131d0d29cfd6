"""Runs a window as one CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from engine.kernels.sampling import Chooser
from engine.logits import CANDIDATES, WIDE, HostLogits
from engine.models.asks import Ask
from engine.models.device_logits import DeviceLogits
from engine.models.graphs import (
    LADDER,
    PROMPT_LADDER,
    Graph,
    Recorder,
    graph_rows,
    long_windows,
    words_of,
)
from engine.models.runner import EagerRunner, Outcome
from engine.models.words import SpanRows, Words
from engine.rows import Rows, rows_of
from engine.sampling import Sampling


@dataclass(slots=True, eq=False)
class WindowGraph:
    """A captured window of R rows: its input, its graphs, and what it leaves behind.

    kept: int32 [S, 5] in host memory, the lines of the next commit. residual: see `Outcome`;
    logits: float32 [R, vocabulary], for prompts [W, vocabulary].
    """

    words: Words
    kept: npt.NDArray[np.int32]
    residual: torch.Tensor
    logits: torch.Tensor
    window: Graph
    commit: Graph


class GraphRunner:
    """Replays one graph a window of up to `sizes[-1]` rows; longer ones run eagerly.

    A graph serves every window with as many rows or fewer, whoever they belong to. One of up to
    `LADDER[-1]` rows computes the logits of all, since the head's weights are read once for all of
    them. `spare` is a slot of the state that no conversation has, `longest` the rows of the longest
    window. `prompts`: whether there are graphs for prompts, no longer than `longest`.
    """

    def __init__(
        self, eager: EagerRunner, recorder: Recorder, spare: int, longest: int, *, prompts: bool
    ) -> None:
        self._eager = eager
        self._trunk = eager.trunk
        self._device = eager.device
        self._spare = spare
        self._longest = longest
        more = tuple(size for size in PROMPT_LADDER if size <= longest) if prompts else ()
        self.sizes = LADDER + more
        self._graphs: dict[int, WindowGraph] = {}
        self._last: WindowGraph | None = None
        self._recorder = recorder
        self._chooser = Chooser(LADDER[-1], self._trunk.vocab_size, self._device)

    def prepare(self) -> None:
        """Captures every graph, the largest first: the others find memory that it gave back."""
        for size in reversed(self.sizes):
            self._graph(size)

    def forward(
        self, tokens: list[int], spans: list[SpanRows], wanted: list[int], asks: Sequence[Ask]
    ) -> Outcome:
        """See `Runner.forward`."""
        size = graph_rows(len(tokens), self.sizes)
        if not size or (size > LADDER[-1] and len(wanted) > LADDER[-1]):
            self._last = None
            return self._long(tokens, spans, wanted, asks)
        graph = self._last = self._graph(size)
        if size > LADDER[-1]:
            graph.words.write(tokens, spans, wanted)
            wanted, asks = _among(wanted, asks)
        else:
            graph.words.write(tokens, spans)
        graph.window.replay()
        found = DeviceLogits(graph.logits, self._chooser, wanted, asks)
        return Outcome(graph.residual, found, graph.words)

    def wait(self) -> None:
        """See `Runner.wait`."""
        self._recorder.wait()

    def captured(self) -> Iterator[Outcome]:
        """What every graph there is leaves behind, without logits."""
        for graph in self._graphs.values():
            yield Outcome(graph.residual, HostLogits(np.empty((0, 0), np.float32)), graph.words)

    def commit(self, lines: list[list[int]]) -> None:
        """See `Runner.commit`."""
        graph = self._last
        if graph is None:
            self._eager.commit(lines)
            return
        graph.kept[: len(lines)] = lines
        graph.kept[len(lines) :] = 0
        graph.commit.replay()

    def _long(
        self, tokens: list[int], spans: list[SpanRows], wanted: list[int], asks: Sequence[Ask]
    ) -> Outcome:
        ids = torch.tensor(tokens, device=self._device)
        residual, hidden = self._eager.compute(ids, rows_of(spans, self._device), wanted)
        wanted, asks = _among(wanted, asks)
        chooser, logits = self._chooser, torch.empty(0, self._trunk.vocab_size)
        if wanted:
            if len(wanted) > LADDER[-1]:
                chooser = Chooser(len(wanted), self._trunk.vocab_size, self._device)
            logits = self._trunk.logits(hidden)
            chooser.find_best(logits)
        return Outcome(residual, DeviceLogits(logits, chooser, wanted, asks))

    def launches(self) -> None:
        """All that graphs, choices and long windows launch, once each."""
        for size in self.sizes:
            words = words_of(size, self._spare, self._device)
            _, hidden = self._eager.compute(words.ids, words.rows, words.wanted)
            logits = self._trunk.logits(hidden)
            self._trunk.commit(words.rows)
            self._chooser.find_best(logits)
            for most in (CANDIDATES, WIDE):
                self._chooser.ask(logits, [Ask(0, 1, Sampling(temperature=1.0)).words], most)
        # Rows and spans; see also `engine.kernels.spans.capacity`.
        shapes = [(rows, 1) for rows in long_windows(self._longest)]
        shapes += [(LADDER[-1] + count, count) for count in range(33, self._spare + 1, 32)]
        for rows, count in shapes:
            last = rows - count + 1
            spans = [(slot, 0, 1, 1) for slot in range(count - 1)]
            made = rows_of([*spans, (self._spare, 0, last, last)], self._device)
            ids = torch.zeros(rows, dtype=torch.int64, device=self._device)
            self._eager.compute(ids, made, [0])

    def _graph(self, size: int) -> WindowGraph:
        if size not in self._graphs:
            self._graphs[size] = self._capture(size)
        return self._graphs[size]

    def _capture(self, size: int) -> WindowGraph:
        """Runs first in the spare slot."""
        words = words_of(size, self._spare, self._device)
        words.write((), ())
        spans = words.rows.spans.shape[0]
        kept = torch.zeros(spans, 5, dtype=torch.int32, pin_memory=self._device != "cpu")
        lines = torch.zeros_like(kept, device=self._device)
        empty = lines.new_empty(0)

        def window() -> tuple[torch.Tensor, ...]:
            words.send()
            residual, hidden = self._eager.compute(words.ids, words.rows, words.wanted)
            logits = self._trunk.logits(hidden)
            self._chooser.find_best(logits)
            return residual, logits

        def commit() -> tuple[torch.Tensor, ...]:
            lines.copy_(kept, non_blocking=True)
            self._trunk.commit(Rows(lines, empty, empty))
            return ()

        graph, (residual, logits) = self._recorder.record(window)
        after, _ = self._recorder.record(commit)
        return WindowGraph(words, kept.numpy(), residual, self._recorder.lend(logits), graph, after)


def _among(wanted: Sequence[int], asks: Sequence[Ask]) -> tuple[list[int], list[Ask]]:
    """Rows of a window's logits, where these are those of the `wanted` rows."""
    numbers = {row: number for number, row in enumerate(wanted)}
    moved = [Ask(numbers[ask.row], ask.position, ask.sampling) for ask in asks]
    return list(numbers.values()), moved
