"""Cards: which maker's, which of them, and what becomes of a memory budget on several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.hardware import BACKENDS, Gpu
from setup.rules.budget import budget_split
from setup.rules.card_menu import MAKERS, CardOption, card_options, vendors
from setup.rules.cards import choose_cards
from setup.wizard.question import Menu, Option
from setup.wizard.situation import Situation


def has_two_makers(s: Situation) -> bool:
    """Whether cards of both makers are usable, by the machine and by this version."""
    return len(_makers(s)) > 1


def makers(s: Situation) -> Menu:
    """One option a maker, the rules' first choice first."""
    return Menu(tuple(_maker(s, vendor) for vendor in _makers(s)))


def _makers(s: Situation) -> tuple[str, ...]:
    return tuple(v for v in vendors(s.hardware, s.opt_ins) if BACKENDS[v] in s.backends)


def _maker(s: Situation, vendor: str) -> Option:
    names = ", ".join(gpu.name for gpu in s.hardware.gpus if gpu.vendor == vendor)
    return Option(BACKENDS[vendor], f"{MAKERS[vendor]}: {names}", words=(vendor, BACKENDS[vendor]))


def has_cards(s: Situation) -> bool:
    """Whether there is a card of a backend that this version has."""
    return s.asked.backend != "cpu" and bool(_options(s))


def cards(s: Situation) -> Menu:
    """The best cards together, all of them, and each alone; only the recommended one has a why."""
    found = _options(s)
    best = next((i for i, option in enumerate(found) if option.recommended), 0)
    reason = choose_cards(s.hardware, s.row, None, _backend(s), s.opt_ins).reasons[0]
    options = (
        Option(
            tuple(gpu.index for gpu in option.cards),
            option.text,
            reason if i == best else "",
        )
        for i, option in enumerate(found)
    )
    return Menu(tuple(options), best)


def _options(s: Situation) -> tuple[CardOption, ...]:
    backend = _backend(s)
    if backend not in s.backends:
        return ()
    found = card_options(s.hardware, s.row, backend, s.opt_ins)
    if s.capabilities.has("layer_split"):
        return found
    return tuple(option for option in found if len(option.cards) == 1)


def _backend(s: Situation) -> str | None:
    """The chosen backend, else the one of the maker that the rules prefer."""
    found = s.asked.backend
    return found or next((BACKENDS[vendor] for vendor in _makers(s)), None)


def may_spread(s: Situation) -> bool:
    """Whether a model with a budget is to lie on several cards although memory is short."""
    if s.subject is None or not s.row.budget or s.answers.cards is None:
        return False
    return len(_chosen(s)) > 1 and not budget_split(s.row, s.hardware.ram_gib)[0]


def _chosen(s: Situation) -> tuple[Gpu, ...]:
    """The cards of the answer, also where the rules would use fewer for this model."""
    return choose_cards(s.hardware, s.models.rows[0], s.answers.cards, _backend(s), s.opt_ins).cards


def why_spread(s: Situation) -> str:
    """What a split of this model needs."""
    return budget_split(s.row, s.hardware.ram_gib)[1] + "."


def spread(s: Situation) -> Menu:
    """The first card with a budget, or all chosen ones without."""
    cards = _chosen(s)
    names = " + ".join(gpu.name for gpu in cards)
    return Menu(
        (
            Option("one", f"{cards[0].name} alone, with a memory budget"),
            Option("several", f"{names}, the whole model in memory"),
        )
    )


def settle_spread(s: Situation, value: Any, taken: bool) -> Situation:
    """Cards by the answer; several are now said by the person and no longer left to the rules."""
    numbers = tuple(gpu.index for gpu in _chosen(s))
    kept = numbers[:1] if value == "one" else numbers
    left = taken and "cards" in s.answers.taken
    answers = s.answers.answered("cards", kept, taken=left)
    return replace(s, answers=answers.answered("spread", value, taken=taken))


def must_be_one(s: Situation) -> bool:
    """Whether several cards were chosen for a model that runs on one."""
    return s.subject is not None and s.too_many_cards(s.row)


def why_one(s: Situation) -> str:
    """That the model cannot be spread."""
    return f"{s.row.title} cannot be spread over cards."


def singles(s: Situation) -> Menu:
    """Each of the chosen cards."""
    cards = _chosen(s)
    return Menu(tuple(Option(gpu.index, f"GPU {gpu.index}: {gpu.name}") for gpu in cards))


def settle_single(s: Situation, value: Any, taken: bool) -> Situation:
    """That card alone."""
    answers = s.answers.answered("cards", (value,), taken=False)
    return replace(s, answers=answers.answered("single", value, taken=taken))
