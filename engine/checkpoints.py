"""The checkpoints of one conversation: states it can go back to.

A checkpoint holds the recurrent state alone. The K/V cells of its prefix lie in the slot, so it is
good only while the slot still holds those tokens: a slot that goes back to a length drops every
checkpoint behind it before another token can take their place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from engine.pipeline import Checkpoint

LATEST = 2
"""The last ones: before a prompt's last turn, where the next turn often begins, and its end."""


class Shelf:
    """At most `limit` checkpoints, in order of length. `root`: the length of one that stays."""

    def __init__(self, limit: int, kept: Sequence[Checkpoint] = (), root: int = 0) -> None:
        self._limit = limit
        self._kept = list(kept)
        self.root = root

    def __len__(self) -> int:
        return len(self._kept)

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
        self.root = self.root if self.root <= length else 0

    def replace(self, make: Callable[[Checkpoint], Checkpoint]) -> None:
        """Each by another one of the same length."""
        self._kept = [make(checkpoint) for checkpoint in self._kept]

    def copy(self, length: int, limit: int | None = None) -> Shelf:
        """Those of at most `length` tokens, on a shelf of their own, for at most `limit`."""
        copied = Shelf(self._limit if limit is None else limit, self._kept, self.root)
        copied.cut(length)
        copied._thin()
        return copied

    def add(self, checkpoint: Checkpoint) -> None:
        """Keep one that is longer than all others; where there are too many, drop one.

        The latest stay, and the root where there is room for one more. Of the others the one goes
        whose loss costs least: the fewest tokens to read again from the one before it.
        """
        self._kept.append(checkpoint)
        self._thin()

    def _thin(self) -> None:
        while len(self._kept) > self._limit:
            lengths = [0, *self.lengths]
            gaps = [after - before for before, after in pairwise(lengths)]
            old = list(range(max(1, len(gaps) - LATEST)))
            others = [index for index in old if self._kept[index].length != self.root]
            dropped = self._kept.pop(min(others or old, key=gaps.__getitem__))
            self.root = self.root if dropped.length != self.root else 0


class Saves(NamedTuple):
    """Where a prompt is saved while it is read: `lengths`, ascending, and which of them is the
    root (0: none)."""

    lengths: tuple[int, ...] = ()
    root: int = 0


def plan_saves(
    prompt: Sequence[int],
    reused: int,
    *,
    limit: int,
    every: int,
    root: int,
    turn_ids: Collection[int],
) -> Saves:
    """Where to save while the tokens of `prompt` behind `reused` are read.

    Before the last of the `turn_ids` (the next question often shares what is before it), at the
    prompt's end, at each multiple of `every` (0: none), and before its second turn, if that comes
    behind at least `root` tokens (0: not there): what other conversations may begin with. With room
    for one checkpoint the end gives way to the turn.
    """
    if limit == 0:
        return Saves()
    lengths = set(range(every, len(prompt), every)) if every else set()
    turn = next((i for i in range(len(prompt) - 1, reused, -1) if prompt[i] in turn_ids), 0)
    lengths.add(turn)
    if limit > 1 or not turn:
        lengths.add(len(prompt))
    second = next((i for i in range(1, len(prompt)) if prompt[i] in turn_ids), 0) if root else 0
    shared = second if second >= root and limit > LATEST else 0
    lengths.add(shared)
    return Saves(tuple(sorted(length for length in lengths if length > reused)), shared)
