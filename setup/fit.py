"""The largest context and the most slots that fit: on this version's engine, and on the cards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.hardware import Hardware
from engine.resolve import make_plan
from setup.asked import Asked
from setup.card_plans import place
from setup.recommend import Recommendation, Subject

MOST_SLOTS = 4096
"""Counting ends here: no server of one machine has more conversations at once."""


@dataclass(frozen=True, slots=True)
class Fit:
    """`context`: the longest for one slot. `slots`: the most at a context of `slots_context`.

    0 means that not even one slot with the shortest context fits.
    """

    where: str
    context: int
    slots: int
    slots_context: int


def fit(
    subject: Subject, hardware: Hardware, asked: Asked, found: Recommendation
) -> tuple[Fit, ...]:
    """One answer for the engine of this version, and one for the cards where there are any."""
    answers = [_fit("this version's engine", subject, found, _on_engine(subject, hardware, found))]
    if found.cards:
        names = " and ".join(card.name for card in found.cards)
        answers.append(_fit(names, subject, found, _on_cards(subject, hardware, asked, found)))
    return tuple(answers)


_Holds = Callable[[int, int], bool]


def _fit(where: str, subject: Subject, found: Recommendation, holds: _Holds) -> Fit:
    context = found.rule.context
    return Fit(
        where,
        context=_most(lambda tokens: holds(tokens, 1), subject.info.train_context),
        slots=_most(lambda slots: holds(context, slots), MOST_SLOTS),
        slots_context=context,
    )


def _on_engine(subject: Subject, hardware: Hardware, found: Recommendation) -> _Holds:
    def holds(context: int, slots: int) -> bool:
        run = replace(found.run, max_context=context, slots=slots, prompt_cache=1)
        plan = make_plan(run, subject.info, hardware)
        same = (plan.config.max_context, plan.config.slots) == (context, slots)
        return same and plan.memory.fits

    return holds


def _on_cards(subject: Subject, hardware: Hardware, asked: Asked, found: Recommendation) -> _Holds:
    def holds(context: int, slots: int) -> bool:
        choice = replace(found.rule, context=context)
        plans = place(subject.info, hardware, choice, replace(asked, parallel=slots)).plans
        return all(plan.fits for plan in plans)

    return holds


def _most(holds: Callable[[int], bool], limit: int) -> int:
    """The largest number from 1 to `limit` for which `holds` (true for all below it); else 0."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
