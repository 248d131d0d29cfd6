"""How fast cards are beside each other: multiprocessors times clock, as the cost model takes it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.hardware import Gpu
from setup.rules.card_verdict import capability

REFERENCE_MS = 0.33
"""One layer of a decode window on an RTX 5080, measured by the original."""
REFERENCE_SPEED = 84 * 3090.0
"""Its multiprocessors times the fastest clock in MHz that its driver names (an estimate)."""
_SMALL_MULTIPROCESSORS = ((6, 0), (7, 0), (7, 5), (8, 0))
"""Compute capabilities with 64 cores a multiprocessor; the others have 128."""


def layer_ms(cards: Sequence[Gpu]) -> tuple[float, ...]:
    """Milliseconds of one layer on each card. Cards count as equal when one is not known."""
    speeds = [_speed(gpu) for gpu in cards]
    if not all(speeds):
        return (REFERENCE_MS,) * len(speeds)
    return tuple(REFERENCE_MS * REFERENCE_SPEED / speed for speed in speeds)


def auto_order(cards: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The cards in the order of the layers under an `auto` split: the fastest last, others stay.

    The last card runs the head and the draft layer, and a prompt's chunk waits for it. Cards of
    equal speed keep their order; so does every explicit split, and `"gpu_order": "as_given"`.
    """
    times = layer_ms(cards)
    if len(set(times)) < 2:
        return tuple(cards)
    last = times.index(min(times))
    return (*cards[:last], *cards[last + 1 :], cards[last])


def _speed(gpu: Gpu) -> float:
    """Multiprocessors (of 64 or 128 cores, by generation) times MHz; 0: not known."""
    size = 64 if capability(gpu) in _SMALL_MULTIPROCESSORS or gpu.vendor == "amd" else 128
    return gpu.cores / size * gpu.clock_mhz
