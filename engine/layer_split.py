"""Which layers run on which card: how a split is written, checked and balanced."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeGuard

from engine.errors import ConfigError

FIRST_CARD_LAYERS = 2
"""The first card holds at least so many layers."""
HEAD_LAYERS = 4.0
"""What the output head and the draft layer on the last card cost, in layers."""


def parse_layer_split(value: object, cards: int, layers: int) -> tuple[int, ...] | None:
    """The first layer of each later card; `None` for auto (nothing, "" or "auto" in any case).

    Takes "13,26,39", a whole number or a list of them. With one card there is nothing to split, and
    `value` is not looked at. Raises `ConfigError` naming the value, the fault and an example.
    """
    if cards <= 1 or value is None or (isinstance(value, str) and _is_auto(value)):
        return None
    first_layers = _whole_numbers(value)
    fault = _fault(first_layers, cards, layers)
    if first_layers is None or fault:
        raise _refusal(value, fault, cards, layers)
    return first_layers


def split_example(cards: int, layers: int) -> str:
    """Equal shares as `layer_split` takes them, such as "12,24,36" for 4 cards and 48 layers."""
    return ",".join(str(layer) for layer in even_split(layers, cards))


def even_split(layers: int, cards: int) -> tuple[int, ...]:
    """The same number of layers on every card. Raises `ConfigError` for too few layers."""
    return balanced_split(layers, cards, head_layers=0)


def balanced_split(layers: int, cards: int, head_layers: float = HEAD_LAYERS) -> tuple[int, ...]:
    """Equal work on every card, with the head on the last one counted as `head_layers` layers.

    Boundary i is round((layers + head_layers) / cards * (i + 1)): 48 layers on 4 cards give
    13, 26, 39. Raises `ConfigError` for fewer layers than the cards can share.
    """
    check_cards(cards, layers)
    share = (layers + head_layers) / max(cards, 1)
    return fit_boundaries((round(share * (i + 1)) for i in range(cards - 1)), cards, layers)


def fit_boundaries(wanted: Iterable[int], cards: int, layers: int) -> tuple[int, ...]:
    """The nearest boundaries to `wanted` that rise and leave every card its layers."""
    taken: list[int] = []
    for i, layer in enumerate(wanted):
        low = taken[-1] + 1 if taken else FIRST_CARD_LAYERS
        taken.append(min(max(layer, low), layers - (cards - 1 - i)))
    return tuple(taken)


def check_cards(cards: int, layers: int) -> None:
    """Raises `ConfigError` when a model has too few layers for so many cards."""
    most = max(1, layers - FIRST_CARD_LAYERS + 1)
    if cards > most:
        raise ConfigError(
            f"{layers} layers cannot be split over {cards} cards: at most {most}, "
            f"{FIRST_CARD_LAYERS} layers on the first card and one on each other",
            "name fewer cards with --gpus",
        )


def _is_auto(text: str) -> bool:
    return text.strip().lower() in ("", "auto")


def _whole_numbers(value: object) -> tuple[int, ...] | None:
    """The numbers of `value`; `None` when it is not a whole number or a list of them."""
    if isinstance(value, str):
        words = [word.strip() for word in value.split(",")]
        if not all(word.isascii() and word.isdigit() and len(word) <= 9 for word in words):
            return None
        return tuple(int(word) for word in words)
    given: Sequence[object] = value if isinstance(value, list | tuple) else [value]
    numbers = tuple(number for number in given if _is_whole(number))
    return numbers if len(numbers) == len(given) else None


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _fault(first_layers: tuple[int, ...] | None, cards: int, layers: int) -> str:
    """What is wrong, in words; empty when nothing is."""
    if first_layers is None:
        return "that is not a list of whole numbers"
    if len(first_layers) != cards - 1:
        given = len(first_layers)
        return f"{given} number{'s' * (given != 1)} for {cards} GPUs, needed: {cards - 1}"
    if first_layers[0] < FIRST_CARD_LAYERS:
        return f"the first GPU needs at least {FIRST_CARD_LAYERS} layers"
    if any(b <= a for a, b in pairwise(first_layers)):
        return "the numbers do not rise"
    if first_layers[-1] >= layers:
        return f"the model has {layers} layers, counted from 0, so {layers - 1} is the last"
    return ""


def _refusal(value: object, fault: str, cards: int, layers: int) -> ConfigError:
    example = split_example(cards, layers)
    shown = json.dumps(value, ensure_ascii=False, default=repr)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return ConfigError(
        f"layer_split is {shown}: {fault}. It takes the first layer of each later GPU, one "
        "rising number per GPU after the first, not counts per card; "
        f'for {cards} GPUs and {layers} layers for example "{example}"',
        f'write "layer_split": "{example}" (--layer-split {example}), or auto',
    )
