"""Runs a window's rows through the trunk: operator by operator, or as one CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from engine.models.trunk import Trunk
from engine.rows import Rows, rows_of

SpanRows = tuple[int, int, int, int]
"""Slot, start position, rows, certain rows."""

MOST_GRAPH_ROWS = 64
"""Windows with more rows are prompts: their kernels run so long that launches hide behind them."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a window gave, until the next one runs.

    residual: float32 [R, C, D] for the draft layer ([R, D], normed, without hyper-connections).
    logits: float32 [wanted rows, vocabulary].
    """

    residual: torch.Tensor
    logits: npt.NDArray[np.float32]


class Runner(Protocol):
    """One window at a time; `commit` speaks of the last one."""

    def forward(self, tokens: list[int], spans: list[SpanRows], wanted: list[int]) -> Outcome:
        """`wanted`: the rows whose logits are asked for, ascending."""

    def commit(self, lines: list[list[int]]) -> None:
        """Applies kept draft rows; `lines` are spans over the last window as in `Rows.spans`."""


class EagerRunner:
    """Launches every operator. `drafts`: the draft layer reads every row."""

    def __init__(self, trunk: Trunk, device: str, *, hyper: bool, drafts: bool) -> None:
        self._trunk = trunk
        self._device = device
        self._hyper = hyper
        self._drafts = drafts

    def forward(self, tokens: list[int], spans: list[SpanRows], wanted: list[int]) -> Outcome:
        """See `Runner.forward`."""
        ids = torch.tensor(tokens, device=self._device)
        residual, hidden = self.compute(ids, rows_of(spans, self._device), wanted)
        if not wanted:
            return Outcome(residual, np.empty((0, self._trunk.vocab_size), np.float32))
        return Outcome(residual, self._trunk.logits(hidden).cpu().numpy())

    def compute(
        self, ids: torch.Tensor, rows: Rows, wanted: list[int] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the draft layer reads, and what the head reads of the `wanted` rows (None: all)."""
        residual = self._trunk.forward(ids, rows)
        if self._hyper or not self._drafts:
            return residual, self._trunk.hidden(residual if wanted is None else residual[wanted])
        hidden = self._trunk.hidden(residual)
        return hidden, hidden if wanted is None else hidden[wanted]

    def commit(self, lines: list[list[int]]) -> None:
        """See `Runner.commit`."""
        spans = torch.tensor(lines, dtype=torch.int32, device=self._device)
        empty = spans.new_empty(0)
        self._trunk.commit(Rows(spans, empty, empty))


@dataclass(frozen=True, slots=True, eq=False)
class _Graph:
    """A captured window of R rows: its inputs, its graph, and what it leaves behind.

    words: int32 [9 R] on the device: tokens as int64, spans, slots, positions. kept: int32 [R, 5].
    """

    words: torch.Tensor
    host: torch.Tensor
    window: torch.cuda.CUDAGraph
    residual: torch.Tensor
    logits: torch.Tensor
    """Pinned host memory, written by the graph's last copy."""
    kept: torch.Tensor
    commit: torch.cuda.CUDAGraph


class GraphRunner:
    """Replays one graph a window of up to `MOST_GRAPH_ROWS` rows; longer ones run eagerly.

    A graph serves every window with as many rows, whoever they belong to: spans, slots, positions
    and tokens lie in its input. It computes the logits of all its rows, since the head's weights
    are read once for all of them. `scratch` is a slot of the state that no conversation has: the
    first run of a graph's operators, which compiles them, happens there.
    """

    def __init__(self, trunk: Trunk, device: str, scratch: int, eager: EagerRunner) -> None:
        self._trunk = trunk
        self._device = device
        self._scratch = scratch
        self._eager = eager
        self._graphs: dict[int, _Graph] = {}
        self._last: _Graph | None = None
        # Graphs run one after another, so they may share what lies between their operators.
        self._pool = torch.cuda.graph_pool_handle()

    def forward(self, tokens: list[int], spans: list[SpanRows], wanted: list[int]) -> Outcome:
        """See `Runner.forward`."""
        count = len(tokens)
        if count > MOST_GRAPH_ROWS:
            self._last = None
            return self._eager.forward(tokens, spans, wanted)
        graph = self._graphs.get(count) or self._capture(count)
        self._last = graph
        _write_words(graph.host, tokens, spans)
        graph.words.copy_(graph.host, non_blocking=True)
        graph.window.replay()
        torch.cuda.current_stream(self._device).synchronize()
        logits = graph.logits.numpy()
        return Outcome(graph.residual, logits if len(wanted) == count else logits[wanted])

    def commit(self, lines: list[list[int]]) -> None:
        """See `Runner.commit`."""
        graph = self._last
        if graph is None:
            self._eager.commit(lines)
            return
        spans = torch.zeros(graph.kept.shape, dtype=torch.int32)
        spans[: len(lines)] = torch.tensor(lines, dtype=torch.int32)
        graph.kept.copy_(spans)
        graph.commit.replay()

    def _capture(self, count: int) -> _Graph:
        """Runs once eagerly in the scratch slot, then records the same launches."""
        host = torch.zeros(9 * count, dtype=torch.int32, pin_memory=True)
        _write_words(host, [0] * count, [(self._scratch, 0, count, count)])
        words = host.to(self._device)
        logits = torch.empty(count, self._trunk.vocab_size, pin_memory=True)
        kept = torch.zeros(count, 5, dtype=torch.int32, device=self._device)
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self._compute(words, count)
            self._commit(kept)
        stream.synchronize()
        window, commit = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(window, pool=self._pool):
            residual, found = self._compute(words, count)
            logits.copy_(found, non_blocking=True)
        with torch.cuda.graph(commit, pool=self._pool):
            self._commit(kept)
        graph = _Graph(words, host, window, residual, logits, kept, commit)
        self._graphs[count] = graph
        return graph

    def _compute(self, words: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        residual, hidden = self._eager.compute(*_inputs(words, count))
        return residual, self._trunk.logits(hidden)

    def _commit(self, kept: torch.Tensor) -> None:
        empty = kept.new_empty(0)
        self._trunk.commit(Rows(kept, empty, empty))


def _write_words(host: torch.Tensor, tokens: list[int], spans: list[SpanRows]) -> None:
    """A graph's input on the host; lines of spans that are not used have no rows."""
    count = len(tokens)
    words = host.numpy()
    words[: 2 * count].view(np.int64)[:] = tokens
    lines = words[2 * count : 7 * count].reshape(count, 5)
    slots, positions = words[7 * count : 8 * count], words[8 * count :]
    lines[:] = 0
    first = 0
    for index, (slot, start, rows, certain) in enumerate(spans):
        lines[index] = slot, first, rows, start, certain
        slots[first : first + rows] = slot
        positions[first : first + rows] = np.arange(start, start + rows)
        first += rows


def _inputs(words: torch.Tensor, count: int) -> tuple[torch.Tensor, Rows]:
    """Tokens and rows as views of a graph's input."""
    ids = words[: 2 * count].view(torch.int64)
    spans = words[2 * count : 7 * count].view(count, 5)
    return ids, Rows(spans, words[7 * count : 8 * count], words[8 * count :])
