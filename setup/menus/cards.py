"""Cards: which maker's, which of them, and what becomes of a memory budget on several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from setup.question import Menu, Option
from setup.rules.budget import budget_split
from setup.rules.cards import card_options, choose_cards, vendors
from setup.situation import BACKENDS, Situation

_TITLES = {"nvidia": "NVIDIA", "amd": "AMD"}


def has_two_makers(s: Situation) -> bool:
    """Whether cards of both makers are usable, by the machine and by this version."""
    return len(_makers(s)) > 1


def makers(s: Situation) -> Menu:
    """One option a maker, the rules' first choice first."""
    return Menu(tuple(_maker(s, vendor) for vendor in _makers(s)))


def _makers(s: Situation) -> tuple[str, ...]:
    return tuple(v for v in vendors(s.hardware) if BACKENDS[v] in s.backends)


def _maker(s: Situation, vendor: str) -> Option:
    names = ", ".join(gpu.name for gpu in s.hardware.gpus if gpu.vendor == vendor)
    return Option(BACKENDS[vendor], f"{_TITLES[vendor]}: {names}", words=(vendor, BACKENDS[vendor]))


def has_cards(s: Situation) -> bool:
    """Whether there is a card of a backend that this version has."""
    return s.asked.backend != "cpu" and bool(_options(s))


def cards(s: Situation) -> Menu:
    """The best cards together, all of them, and each alone; only the recommended one has a why."""
    found = _options(s)
    best = next(i for i, option in enumerate(found) if option.recommended)
    reason = choose_cards(s.hardware, s.row, None, _backend(s)).reasons[0]
    options = (
        Option(
            tuple(gpu.index for gpu in option.cards),
            option.text,
            reason if i == best else "",
        )
        for i, option in enumerate(found)
    )
    return Menu(tuple(options), best)


def _options(s: Situation) -> tuple[Any, ...]:
    backend = _backend(s)
    return card_options(s.hardware, s.row, backend) if backend in s.backends else ()


def _backend(s: Situation) -> str | None:
    """The chosen backend, else the one of the maker that the rules prefer."""
    found = s.asked.backend
    return found or next((BACKENDS[vendor] for vendor in _makers(s)), None)


def may_spread(s: Situation) -> bool:
    """Whether a model with a budget is to lie on several cards although memory is short."""
    if s.subject is None or not s.row.budget or s.answers.cards is None:
        return False
    several = s.answers.cards == "all" or len(s.answers.cards) > 1
    return several and not budget_split(s.row, s.hardware.ram_gib)[0]


def why_spread(s: Situation) -> str:
    """What a split of this model needs."""
    return budget_split(s.row, s.hardware.ram_gib)[1] + "."


def spread(s: Situation) -> Menu:
    """The first card with a budget, or all chosen ones without."""
    names = " + ".join(gpu.name for gpu in s.cards)
    return Menu(
        (
            Option("one", f"{s.cards[0].name} alone, with a memory budget"),
            Option("several", f"{names}, the whole model in memory"),
        )
    )


def settle_spread(s: Situation, value: Any, taken: bool) -> Situation:
    """Cards by the answer; several are now said by the person and no longer left to the rules."""
    numbers = tuple(gpu.index for gpu in s.cards)
    kept = numbers[:1] if value == "one" else numbers
    answers = s.answers.answered("cards", kept, taken=False)
    return replace(s, answers=answers.answered("spread", value, taken=taken))
