"""Which rows the next window carries, and what a window's outcome does to the slots.

A slot that misses one token gets that row and its drafts in every window. The slots that miss more
(they read a prompt) share `chunk` rows a window, fewer while others write: the one that came first
gets half of them, the shortest remaining ones go next, and what nobody else needs goes in order of
arrival.

Where more than a window is left of the first, it gives way, twice at most: while a prompt under
half as long as what is left of it is read, windows have no rows of other prompts and are over soon.
So a short question never waits for a long prompt to end, and a long prompt loses less time than it
takes anyway, whatever arrives.

Nothing here sees a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Event, Finish, Finished, Produced, PromptRead
from engine.slots import Run, Slot
from engine.speculative import Outcome
from engine.window import Span, Window

MOST_PASSING = 2
"""Shorter prompts that one prompt lets pass."""
MOST_BESIDE = 1024
"""Prompt rows of a window in which others write: they wait for the whole window, and larger ones
gain a sixth of a prompt's time at most."""


class Scheduler:
    """Owns the counts of all slots. `chunk` is the most prompt rows of one window.

    When no slot writes, a prompt gives way after every `yield_chunks` chunks only (0: it does not).
    """

    def __init__(self, slots: Sequence[Slot], chunk: int, yield_chunks: int) -> None:
        self.slots = slots
        self._chunk = chunk
        self._yield_chunks = yield_chunks
        self._clock = 0

    def schedule(self) -> Window:
        """The rows of the next window; without any when no request runs."""
        spans: list[Span] = []
        reading: list[tuple[Slot, Run]] = []
        for slot in self.slots:
            if slot.run:
                if slot.missing > 1:
                    reading.append((slot, slot.run))
                else:
                    spans.append(_next_token(slot, slot.run))
        if reading:
            reading.sort(key=lambda pair: pair[1].arrival)
            chunk = min(self._chunk, MOST_BESIDE) if spans else self._chunk
            reading = self._passing(reading, chunk, writing=bool(spans)) or reading
            shares = self._share([slot for slot, _ in reading], chunk)
            for slot, run in reading:
                if shares[slot.index]:
                    run.chunks += 1
                    spans.append(self._chunk_of(slot, run, shares[slot.index]))
        return Window(tuple(spans))

    def update(self, outcomes: Sequence[Outcome]) -> list[Event]:
        """Take in what became of a window's spans, in their order."""
        events: list[Event] = []
        for outcome in outcomes:
            self._take_in(outcome, events)
        return events

    def free(self, slot: Slot, finish: Finish, error: str = "") -> Finished:
        """End the request in `slot`; the slot keeps what it holds, after an error nothing."""
        run, generated = slot.run, slot.generated
        assert run is not None
        self._clock += 1
        slot.leave(self._clock)
        if error:
            slot.forget()
        counts = (generated, run.accepted, run.offered, slot.computed)
        return Finished(run.request.id, slot.index, finish, *counts, error=error)

    def _passing(
        self, reading: Sequence[tuple[Slot, Run]], chunk: int, *, writing: bool
    ) -> list[tuple[Slot, Run]]:
        """Those that the first of `reading` lets pass now."""
        (first, run), *others = reading
        piece = self._yield_chunks
        if first.missing > chunk and (writing or (piece and run.chunks % piece == 0)):
            short = [
                (slot.missing, other.arrival)
                for slot, other in others
                if 2 * slot.missing < first.missing and other.arrival not in run.gave_way
            ]
            run.gave_way |= {n for _, n in sorted(short)[: MOST_PASSING - len(run.gave_way)]}
        return [pair for pair in others if pair[1].arrival in run.gave_way]

    def _chunk_of(self, slot: Slot, run: Run, rows: int) -> Span:
        end = slot.computed + rows
        tokens = tuple(slot.tokens[slot.computed : end])
        logits_from = rows - 1 if end == len(slot.tokens) else rows
        return Span(slot.index, slot.computed, tokens, rows, logits_from, run.request.sampling)

    def _share(self, reading: Sequence[Slot], chunk: int) -> dict[int, int]:
        """`chunk` prompt rows of this window by slot index; `reading` is in order of arrival."""
        shares = {slot.index: 0 for slot in reading}
        left = chunk
        halves = [(slot, -(-chunk // 2)) for slot in reading[:1]]
        shortest = [(slot, left) for slot in sorted(reading[1:], key=lambda slot: slot.missing)]
        for slot, most in [*halves, *shortest, *((slot, left) for slot in reading)]:
            rows = min(most, left, _readable(slot) - shares[slot.index])
            shares[slot.index] += rows
            left -= rows
        return shares

    def _take_in(self, outcome: Outcome, events: list[Event]) -> None:
        index, verdict, choices, offered, finish, error = outcome
        slot = self.slots[index]
        run = slot.run
        assert run is not None
        request = run.request
        total = len(request.tokens)
        if slot.computed < total:
            read = slot.computed + verdict.kept
            events.append(PromptRead(request.id, index, read, total, run.phases))
        slot.computed += verdict.kept
        for choice in choices:
            slot.tokens.append(choice.token)
            events.append(Produced(request.id, index, choice))
        if offered:
            run.drafts = []
            run.accepted += outcome.accepted
            run.offered += offered
        if finish:
            events.append(self.free(slot, finish, error))


def _next_token(slot: Slot, run: Run) -> Span:
    tokens = (slot.tokens[-1], *run.drafts)
    return Span(slot.index, slot.computed, tokens, 1, 0, run.request.sampling)


def _readable(slot: Slot) -> int:
    """Rows that one span of `slot` may have: to the prompt's end or to the next checkpoint."""
    lengths = slot.run.saves.lengths if slot.run else ()
    stops = (length for length in lengths if length > slot.computed)
    return min(slot.missing, next(stops, len(slot.tokens)) - slot.computed)
