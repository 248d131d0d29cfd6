"""Which cards a model runs on: who is usable, who may share a model, and the menu (thin)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.hardware import Gpu, Hardware
from setup.catalogue import ModelRow


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a card is usable, and why, as a sentence."""

    usable: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CardOption:
    """One line of the menu. The first card runs layer 0."""

    cards: tuple[Gpu, ...]
    text: str
    recommended: bool


@dataclass(frozen=True, slots=True)
class CardChoice:
    """The cards to use, in order; none: no usable card."""

    cards: tuple[Gpu, ...]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def verdict(gpu: Gpu, hardware: Hardware, named: bool = False) -> Verdict:
    """Whether `gpu` is usable; `named`: the user asked for this very card."""
    return Verdict(not gpu.integrated, "")


def together(hardware: Hardware) -> tuple[Gpu, ...]:
    """The cards that may share a model, best first; none when there are fewer than two."""
    cards = tuple(gpu for gpu in hardware.gpus if verdict(gpu, hardware).usable)
    return cards if len(cards) >= 2 else ()


def card_options(hardware: Hardware, row: ModelRow) -> tuple[CardOption, ...]:
    """The menu: the best two together, then all, then each card alone."""
    singles = [gpu for gpu in hardware.gpus if verdict(gpu, hardware).usable]
    return tuple(CardOption((gpu,), gpu.name, i == 0) for i, gpu in enumerate(singles))


def choose_cards(
    hardware: Hardware,
    row: ModelRow,
    gpus: tuple[int, ...] | Literal["all"] | None,
    backend: str | None = None,
) -> CardChoice:
    """The cards for `row`; `gpus` as the user named them, by `Gpu.index`."""
    if isinstance(gpus, tuple):
        return CardChoice(tuple(gpu for gpu in hardware.gpus if gpu.index in gpus), (), ())
    options = [option for option in card_options(hardware, row) if option.recommended]
    return CardChoice(options[0].cards if options else (), (), ())
