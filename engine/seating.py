"""Seating: a request gets a slot whose state is that of the beginning of its prompt."""

from __future__ import annotations

from collections.abc import Sequence

from engine.parking import ParkingLot
from engine.pipeline import Checkpoint, Pipeline
from engine.request import Request
from engine.slots import Slot, choose_slot

LITTLE = 8
"""A slot that goes back by less than this part of what it holds does not park: reading that again
costs less than copying the rest."""


class Seating:
    """Finds the most of a prompt that is computed: in the slot that it gets, among parked
    conversations, or in another slot, whose beginning is copied.

    few: tokens that are read again rather than copied.
    """

    def __init__(
        self, pipeline: Pipeline, slots: Sequence[Slot], parking: ParkingLot, few: int
    ) -> None:
        self._pipeline = pipeline
        self._slots = slots
        self._parking = parking
        self._few = few

    def place(self, request: Request) -> tuple[Slot, int]:
        """A free slot whose state is that of so many tokens of the prompt. What was there is parked
        if much of it is lost. Raises `RequestError` when there is none."""
        prompt, found = request.tokens, self._parking.find(request.tokens)
        slot = choose_slot(self._slots, request)
        reuse = slot.reuse(prompt)
        parked = found.reuse.length if found else 0
        other = self._like(slot, prompt, max(reuse.length, parked) + self._few)
        kept = reuse.length if other is None and parked <= reuse.length else 0
        if slot.loses(prompt) and (slot.computed - kept) * LITTLE > slot.computed:
            self._parking.park(slot)
        if other is not None:
            return slot, self._copy_beginning(*other, slot)
        if found and parked > reuse.length:
            self._parking.restore(found, slot, prompt)
            return slot, parked
        if reuse.checkpoint:
            self._pipeline.restore(slot.index, reuse.checkpoint)
        elif reuse.length == 0 and slot.computed:
            self._pipeline.clear(slot.index)
        return slot, reuse.length

    def _like(
        self, slot: Slot, prompt: Sequence[int], least: int
    ) -> tuple[Slot, Checkpoint] | None:
        """Another slot, busy or not, that begins like the prompt, and its checkpoint there, which
        has at least so many tokens."""
        found = [
            (other, checkpoint)
            for other in self._slots
            if other is not slot and (checkpoint := other.shared(prompt))
        ]
        best = max(found, key=lambda pair: pair[1].length, default=None)
        return best if best and best[1].length >= least else None

    def _copy_beginning(self, other: Slot, checkpoint: Checkpoint, slot: Slot) -> int:
        """Makes the first tokens of another slot's conversation those of `slot`; how many."""
        length = checkpoint.length
        self._pipeline.copy_cells(other.index, slot.index, length)
        self._pipeline.restore(slot.index, checkpoint)
        slot.shelf = other.shelf.copy(length)
        return length
