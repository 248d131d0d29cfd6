"""Parking: conversations that lost their slot are kept in host memory until somebody goes on.

A parked conversation is what its slot held: token ids, cells, the state at its end, checkpoints.
Token ids are compared, never a hash of them, so nobody gets another's state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.checkpoints import LATEST, Shelf
from engine.pipeline import Cells, Checkpoint, Pipeline
from engine.prefix import common_prefix
from engine.slots import Reuse, Slot, find_reuse, goes_on
from engine.work import Work

FEW_TOKENS = 64
"""Reading them again is as fast as copying a state within a device."""
WORTH_BYTES = 256 << 10
"""Where all of a model lies on a card, copying so much to the machine's memory and back takes about
as long as reading a token of a prompt."""
READY_BYTES = 4 << 30
"""Of the memory for parking what is there before the first request: locking 1 GB takes 0.4 s."""


def least_parked(checkpoint_bytes: int, *, fast: bool) -> int:
    """Tokens of the shortest conversation that is worth parking. `fast`: a card with all of the
    model reads prompts, so that a state of so many bytes is worth many tokens."""
    return max(FEW_TOKENS, checkpoint_bytes // WORTH_BYTES) if fast else FEW_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkingLimits:
    """How much may be parked."""

    size_bytes: int = 0
    """0: nothing is parked."""
    conversations: int = 0
    """0: any number."""
    free_bytes: int = 0
    """Memory of the machine that stays free."""
    least_tokens: int = FEW_TOKENS
    """Shorter conversations are not parked."""


NO_PARKING = ParkingLimits()


@dataclass(slots=True, eq=False)
class Parked:
    """A conversation: `tokens` are computed, `asked` of them were its last prompt, `end` is the
    state behind them all."""

    tokens: list[int]
    asked: int
    cells: Cells
    end: Checkpoint
    shelf: Shelf


@dataclass(frozen=True, slots=True)
class Found:
    """What a parked conversation has of a prompt."""

    parked: Parked
    reuse: Reuse


class ParkingLot:
    """The parked conversations of one engine, the one used longest ago first.

    free_memory: bytes that the machine can give now.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        limits: ParkingLimits,
        work: Work,
        free_memory: Callable[[], int],
    ) -> None:
        self._pipeline = pipeline
        self._limits = limits
        self._work = work
        self._free_memory = free_memory
        pipeline.prepare_parking(min(limits.size_bytes, READY_BYTES))
        self._parked: list[Parked] = []

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def size_bytes(self) -> int:
        """Host memory of all of them."""
        return sum(self._bytes(len(one.tokens), one.shelf) for one in self._parked)

    def find(self, prompt: Sequence[int]) -> Found | None:
        """The conversation that has most of `prompt`, if one has any."""
        every = (Found(one, find_reuse(one.tokens, one.shelf, prompt)) for one in self._parked)
        best = max(every, key=lambda found: found.reuse.length, default=None)
        return best if best and best.reuse.length else None

    def park(self, slot: Slot) -> None:
        """Take in what a free slot holds; where there is no room for it, it is lost."""
        held = slot.held
        if self._limits.size_bytes == 0 or len(held) < self._limits.least_tokens:
            return
        # A shorter part of the same conversation has nothing that this one lacks.
        whole = [one for one in self._parked if common_prefix(one.tokens, held) == len(one.tokens)]
        for one in whole:
            self._parked.remove(one)
        shelf = slot.shelf.copy(len(held))
        if not self._makes_room(len(held), shelf):
            shelf = shelf.copy(len(held), LATEST)
            if not self._makes_room(len(held), shelf):
                self._work.dropped += 1
                return
        cells = self._pipeline.take_out(slot.index, len(held))
        end = self._pipeline.set_aside(self._pipeline.save(slot.index))
        shelf.replace(self._pipeline.set_aside)
        self._parked.append(Parked(held, slot.asked, cells, end, shelf))
        self._work.parked += 1

    def restore(self, found: Found, slot: Slot, prompt: Sequence[int]) -> None:
        """Bring the model's state of a free slot to what was found.

        The conversation leaves the lot with the prompt that continues it, and stays for another one
        that only begins like it.
        """
        parked, reuse = found.parked, found.reuse
        if parked in self._parked:  # else it made room for what the slot held
            self._parked.remove(parked)
            if not goes_on(parked.tokens, parked.asked, prompt):
                self._parked.append(parked)
        self._pipeline.put_in(slot.index, parked.cells, reuse.length)
        self._pipeline.restore(slot.index, reuse.checkpoint or parked.end)
        slot.shelf = parked.shelf.copy(reuse.length)
        self._work.restored += 1

    def _makes_room(self, length: int, shelf: Shelf) -> bool:
        """Drops what is in the way of so much more: first old checkpoints, then conversations."""
        needed = self._bytes(length, shelf)
        if needed > self._limits.size_bytes:
            return False
        while not self._has_room(needed):
            thick = next((one for one in self._parked if len(one.shelf) > LATEST), None)
            if thick is not None:
                thick.shelf = thick.shelf.copy(len(thick.tokens), LATEST)
            elif self._parked:
                del self._parked[0]
                self._work.dropped += 1
            else:
                return False
        return True

    def _has_room(self, needed: int) -> bool:
        limits = self._limits
        if self.size_bytes + needed > limits.size_bytes:
            return False
        if limits.conversations and len(self._parked) >= limits.conversations:
            return False
        if not limits.free_bytes:
            return True
        left = self._free_memory() + self._pipeline.idle_bytes() - needed
        return left >= limits.free_bytes

    def _bytes(self, length: int, shelf: Shelf) -> int:
        checkpoints = 1 + len(shelf)
        return self._pipeline.cell_bytes(length) + checkpoints * self._pipeline.checkpoint_bytes
