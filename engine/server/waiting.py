"""Which of the waiting requests gets the next free slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


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
