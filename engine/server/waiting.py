"""Which of the waiting requests gets the next free slot, and which prompt lets it have its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

MOST_PASSING = 2
"""Shorter prompts that one read gives its slot to."""


class Waiter(Protocol):
    """What is asked of a request that waits: its token ids, and when it came, in seconds."""

    prompt: tuple[int, ...]
    created: float


def next_in_line(queue: Sequence[Waiter], short: int, max_wait_s: float, now: float) -> int:
    """Index in `queue`, which is in order of arrival and not empty, of the one that is next.

    Prompts of at most `short` tokens go before longer ones, and so do those that waited
    `max_wait_s`; among themselves both keep their order. So nobody is overtaken by one that came
    `max_wait_s` later, and with `short` 0 the order is that of arrival.
    """
    ahead = (
        index
        for index, waiter in enumerate(queue)
        if len(waiter.prompt) <= short or now - waiter.created >= max_wait_s
    )
    return next(ahead, 0)


class Reader(Protocol):
    """What is asked of a request whose prompt is being read: its token ids, how many of them are
    in, and how often it gave its slot away."""

    prompt: tuple[int, ...]
    read: int
    gave_way: int


R = TypeVar("R", bound=Reader)


def gives_way(readers: Iterable[R], prompt: Sequence[int], window: int) -> R | None:
    """The one of `readers` that gives its slot to `prompt`: more than a `window` of tokens and more
    than twice that prompt are left of its own. Most is left of it; nobody does it more than twice.
    """

    def left(reader: R) -> int:
        return len(reader.prompt) - reader.read

    least = max(window, 2 * len(prompt))
    able = [one for one in readers if one.gave_way < MOST_PASSING and left(one) > least]
    return max(able, key=left, default=None)
