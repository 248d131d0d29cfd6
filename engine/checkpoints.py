"""The checkpoints of one slot: states it can go back to.

A checkpoint holds the recurrent state alone. The K/V cells of its prefix lie in the slot, so it is
good only while the slot still holds those tokens: a slot that goes back to a length drops every
checkpoint behind it before another token can take their place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from engine.pipeline import Checkpoint


class Shelf:
    """At most `limit` checkpoints, in order of length."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[Checkpoint] = []

    @property
    def lengths(self) -> list[int]:
        """Lengths of all that are kept, ascending."""
        return [checkpoint.length for checkpoint in self._kept]

    def deepest(self, length: int) -> Checkpoint | None:
        """The longest one of at most `length` tokens."""
        fitting = [checkpoint for checkpoint in self._kept if checkpoint.length <= length]
        return fitting[-1] if fitting else None

    def cut(self, length: int) -> None:
        """Drop everything longer than `length`: those tokens are no longer the slot's."""
        self._kept = [checkpoint for checkpoint in self._kept if checkpoint.length <= length]

    def add(self, checkpoint: Checkpoint) -> None:
        """Keep one that is longer than all others; where there are too many, drop one.

        The last two (a prompt's last turn and its end) stay. Of the others the one goes whose loss
        costs least: the fewest tokens to read again from the one before it.
        """
        self._kept.append(checkpoint)
        if len(self._kept) > self._limit:
            lengths = [0, *self.lengths]
            gaps = [after - before for before, after in pairwise(lengths)]
            old = range(max(1, len(gaps) - 2))
            del self._kept[min(old, key=gaps.__getitem__)]


def checkpoint_lengths(
    prompt: Sequence[int], reused: int, limit: int, every: int, turn_ids: Collection[int]
) -> tuple[int, ...]:
    """Where to save while the tokens of `prompt` behind `reused` are read, ascending.

    Before the last of the `turn_ids` (the next question often shares what is before it), at the
    prompt's end, and at each multiple of `every` (0: none). With room for one checkpoint the end
    gives way to the turn.
    """
    if limit == 0:
        return ()
    lengths = set(range(every, len(prompt), every)) if every else set()
    turn = next((i for i in range(len(prompt) - 1, reused, -1) if prompt[i] in turn_ids), 0)
    lengths.add(turn)
    if limit > 1 or not turn:
        lengths.add(len(prompt))
    return tuple(sorted(length for length in lengths if length > reused))
