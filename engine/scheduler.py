"""Which rows the next window carries, and what a window's outcome does to the slots.

A slot that misses one token gets that row and its drafts in every window. The slots that miss more
(they read a prompt) share `chunk` rows a window: the one that came first gets half of them, the
shortest remaining ones go next, and what nobody else needs goes in order of arrival. So a short
question never waits for a long prompt to end, and a long prompt never stops.

Nothing here sees a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Event, Finish, Finished, Produced, PromptRead
from engine.slots import Run, Slot
from engine.speculative import Outcome
from engine.window import Span, Window


class Scheduler:
    """Owns the counts of all slots. `chunk` is the most prompt rows of one window."""

    def __init__(self, slots: Sequence[Slot], chunk: int) -> None:
        self.slots = slots
        self._chunk = chunk
        self._clock = 0

    def schedule(self) -> Window:
        """The rows of the next window; without any when no request runs."""
        spans: list[Span] = []
        reading: list[Slot] = []
        for slot in self.slots:
            if slot.run:
                if slot.missing > 1:
                    reading.append(slot)
                else:
                    spans.append(_next_token(slot, slot.run))
        if reading:
            reading.sort(key=lambda slot: slot.run.arrival if slot.run else 0)
            shares = self._share(reading)
            spans += [
                self._chunk_of(slot, shares[slot.index]) for slot in reading if shares[slot.index]
            ]
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

    def _chunk_of(self, slot: Slot, rows: int) -> Span:
        end = slot.computed + rows
        tokens = tuple(slot.tokens[slot.computed : end])
        logits_from = rows - 1 if end == len(slot.tokens) else rows
        sampling = slot.run.request.sampling if slot.run else None
        return Span(slot.index, slot.computed, tokens, rows, logits_from, sampling)

    def _share(self, reading: Sequence[Slot]) -> dict[int, int]:
        """Prompt rows of this window by slot index; `reading` is in order of arrival."""
        shares = {slot.index: 0 for slot in reading}
        left = self._chunk
        halves = [(slot, -(-self._chunk // 2)) for slot in reading[:1]]
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
            events.append(PromptRead(request.id, index, slot.computed + verdict.kept, total))
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
    stops = (length for length in slot.run.save_at if length > slot.computed) if slot.run else ()
    return min(slot.missing, next(iter(stops), len(slot.tokens)) - slot.computed)
