"""Drafts as CUDA graphs: one for the rows of a window, one for a chain of all slots that ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from engine.kernels.sampling import Chooser, rows_at, spread_rows
from engine.models.config import ModelConfig
from engine.models.drafter import Drafter
from engine.models.drafting import Drafting, values_of
from engine.models.graphs import LADDER, Graph, Recorder, graph_rows, long_windows, words_of
from engine.models.runner import Outcome
from engine.models.state import StateShape
from engine.models.words import Words
from engine.pipeline import DraftAsk
from engine.rows import Rows, rows_of
from engine.sampler import ONE
from engine.window import Verdict, Window


@dataclass(slots=True, eq=False)
class _Feed:
    """Feeds all rows of a window: the tokens that follow them (int64) and the slots that keep what
    the layer makes of them (-1: none), int32 [2 R] and [R] in host memory."""

    follow: torch.Tensor
    keep: torch.Tensor
    graph: Graph


@dataclass(slots=True, eq=False)
class _Chain:
    """A chain's steps: rows of each, and what came out, int64 [steps, A, 2] in host memory
    (columns of the draft layer's logits, and sums of weights)."""

    words: list[Words]
    told: torch.Tensor
    graph: Graph


class GraphDrafting(Drafting):
    """As `Drafting`. Dropped rows of a window are fed, too: what they leave is overwritten, since
    all of the layer's state is by position."""

    def __init__(
        self,
        drafter: Drafter,
        config: ModelConfig,
        shape: StateShape,
        device: str,
        recorder: Recorder,
        windows: Callable[[], Iterator[Outcome]],
        sizes: Sequence[int],
        longest: int,
    ) -> None:
        """`windows`: what the graphs of windows, of `sizes` rows, leave behind; the last slot is a
        spare one. longest: rows of the longest window."""
        super().__init__(drafter, config, shape, device)
        self._recorder = recorder
        self._windows = windows
        self._sizes = sizes
        self._longest = longest
        self._drafts = shape.drafts
        self._spare = shape.slots - 1
        self._chooser = Chooser(LADDER[-1], drafter.columns, device)
        self._feeds: dict[int, _Feed] = {}
        self._chains: dict[tuple[int, int], _Chain] = {}

    def launches(self) -> None:
        """All that feeding the layer and asking it launches, once each."""
        for size in self._sizes:
            words = words_of(size, self._spare, self._device)
            residual = self.last.new_empty(size, *self.last.shape[1:])
            self._fed(residual, words.ids, words.rows, words.rows.slots)
        for size in LADDER:
            words = Words(size, self._spare, self._device)
            told = torch.empty(2, size, 2, dtype=torch.int64, pin_memory=self._device != "cpu")
            self._chained([words], told, words.ids.clone())
        for rows in long_windows(self._longest):
            residual = self.last.new_empty(rows, *self.last.shape[1:])
            ids = torch.zeros(rows, dtype=torch.int64, device=self._device)
            made = rows_of([(self._spare, 0, rows, rows)], self._device)
            self._drafter.forward(residual, ids, made)

    def prepare(self) -> None:
        """Makes the graphs behind those of windows, and of chains of any number of drafts: how many
        a conversation gets changes while it writes."""
        for found in self._windows():
            self._feed_graph(found)
        for size in LADDER:
            if size <= (graph_rows(self._spare) or LADDER[-1]):
                for drafts in range(1, self._drafts + 1):
                    self._chain(size, drafts)

    def draft(self, asks: Sequence[DraftAsk]) -> Callable[[], list[list[int]]]:
        """See `Pipeline.draft`."""
        able = self._able(asks)
        size = graph_rows(len(able))
        if not able or not size:
            return super().draft(asks)
        chain = self._chain(size, max(asks[index].count for index in able))
        last = self._context - 1
        ends = [(asks[index].slot, self._seats[asks[index].slot].length) for index in able]
        for step, words in enumerate(chain.words):
            words.write((), [(slot, min(end + step, last), 1, 1) for slot, end in ends])
        chain.graph.replay()

        def drafts() -> list[list[int]]:
            self._recorder.wait()
            found: list[list[int]] = [[] for _ in asks]
            told = chain.told.tolist()
            for row, index in enumerate(able):
                found[index] = self._offered(asks[index], [step[row] for step in told])
            return found

        return drafts

    def _offered(self, ask: DraftAsk, told: list[list[int]]) -> list[int]:
        drafts: list[int] = []
        for column, total in told[: ask.count]:
            if not total or ONE / total < ask.min_probability:
                break
            if drafts and not self._position(ask, drafts):
                break
            drafts.append(self._token(column))
        return drafts

    def _feed(self, window: Window, verdicts: Sequence[Verdict], found: Outcome) -> None:
        if found.words is None:
            super()._feed(window, verdicts, found)
            return
        graph = self._feed_graph(found)
        follow: list[int] = []
        keep: list[int] = []
        for span, verdict in zip(window.spans, verdicts, strict=True):
            follow += (*span.tokens[1:], 0)
            keep += [-1] * len(span.tokens)
            end = verdict.kept - len(span.tokens) - 1
            follow[end] = verdict.next_token or 0
            keep[end] = span.slot
        count = len(keep)
        tokens, places = graph.follow.numpy(), graph.keep.numpy()
        tokens[: 2 * count : 2] = follow
        places[:count] = keep
        places[count:] = -1
        graph.graph.replay()

    def _feed_graph(self, found: Outcome) -> _Feed:
        assert found.words is not None
        size, rows = found.words.count, found.words.rows
        if size not in self._feeds:
            host = torch.zeros(3 * size, dtype=torch.int32, pin_memory=self._device != "cpu")
            host[2 * size :] = -1
            there = torch.empty_like(host, device=self._device)

            def feed() -> tuple[()]:
                there.copy_(host, non_blocking=True)
                follow = there[: 2 * size].view(torch.int64)
                self._fed(found.residual, follow, rows, there[2 * size :])
                return ()

            graph, _ = self._recorder.record(feed)
            self._feeds[size] = _Feed(host[: 2 * size], host[2 * size :], graph)
        return self._feeds[size]

    def _fed(
        self, residual: torch.Tensor, follow: torch.Tensor, rows: Rows, keep: torch.Tensor
    ) -> None:
        after, hidden = self._drafter.forward(residual, follow, rows)
        for made, slots in (
            (residual, self.last),
            (after, self._residuals),
            (values_of(hidden), self._hiddens),
        ):
            spread_rows(made, slots, keep)

    def _chain(self, size: int, steps: int) -> _Chain:
        if (size, steps) not in self._chains:
            words = [Words(size, self._spare, self._device) for _ in range(max(1, steps - 1))]
            for one in words:
                one.write((), ())
            told = torch.zeros(steps, size, 2, dtype=torch.int64, pin_memory=self._device != "cpu")
            tokens = torch.zeros(size, dtype=torch.int64, device=self._device)

            def chain() -> tuple[()]:
                for one in words:
                    one.send()
                self._chained(words, told, tokens)
                return ()

            graph, _ = self._recorder.record(chain)
            self._chains[size, steps] = _Chain(words, told, graph)
        return self._chains[size, steps]

    def _chained(self, words: list[Words], told: torch.Tensor, tokens: torch.Tensor) -> None:
        """A draft a step of `told`; between two steps the layer is fed the last ones."""
        slots = words[0].rows.slots
        residual, hidden = rows_at(self._residuals, slots), rows_at(self._hiddens, slots)
        for step in range(len(told)):
            self._chooser.likeliest(self._drafter.logits(hidden), tokens, told[step])
            if step + 1 < len(told):
                ids = self._drafter.tokens(tokens)
                residual, after = self._drafter.forward(residual, ids, words[step].rows)
                hidden = values_of(after)
