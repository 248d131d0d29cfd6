"""The menu of cards: who may share a model, what is offered, what is recommended and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.errors import ConfigError
from engine.hardware import BACKENDS, Gpu, Hardware
from setup.models.catalogue import ModelRow
from setup.profiles import load_profiles, matching_profile
from setup.rules.budget import budget_split
from setup.rules.card_verdict import (
    NO_OPT_INS,
    OptIns,
    capability,
    identity,
    title,
    verdict,
)

SHARE_GIB = 7.5
"""A card that shares a model holds dense weights and prompt buffers beside its experts: "8 GB"."""
PROMPT_GIB = 11.5
"""Below it ("12 GB") a later card caps the prompt chunks of a split. The original's #448 measured
prompts 6.2 times slower on 32 + 10 GB than on the first card alone."""
MAKERS = {"nvidia": "NVIDIA", "amd": "AMD"}


@dataclass(frozen=True, slots=True)
class CardOption:
    """One line of the menu. The first card runs layer 0."""

    cards: tuple[Gpu, ...]
    text: str
    recommended: bool


@dataclass(frozen=True, slots=True)
class Pick:
    """The recommended cards, and why, as a sentence."""

    cards: tuple[Gpu, ...]
    reason: str


def vendors(hardware: Hardware, opt_ins: OptIns = NO_OPT_INS) -> tuple[str, ...]:
    """Makers with a usable card, the recommended one first.

    NVIDIA goes first, but an integrated GPU does not win against another maker's card.
    """
    usable = usable_cards(hardware, opt_ins)
    found = {gpu.vendor for gpu in usable}
    discrete = {gpu.vendor for gpu in usable if not gpu.integrated}
    return tuple(sorted(found, key=lambda vendor: (vendor not in discrete, vendor != "nvidia")))


def vendor_of(backend: str | None) -> str | None:
    """The maker that a backend is for; `None`: not said. Raises `ConfigError` for another word."""
    if backend is None or backend == "auto":
        return None
    word = backend.split(":")[0]
    found = next((vendor for vendor, name in BACKENDS.items() if name == word), None)
    if found is None:
        raise ConfigError(
            f"backend is {backend!r}, and cards are run by cuda (NVIDIA) and hip (AMD)",
            "leave --backend out, or name one of the two",
        )
    return found


def usable_cards(hardware: Hardware, opt_ins: OptIns = NO_OPT_INS) -> tuple[Gpu, ...]:
    """Every usable card once, in the order of the recording."""
    cards = {identity(gpu): gpu for gpu in reversed(hardware.gpus)}
    return tuple(
        gpu
        for gpu in hardware.gpus
        if cards[identity(gpu)] is gpu and verdict(gpu, hardware, opt_ins=opt_ins).usable
    )


def singles(
    hardware: Hardware, backend: str | None = None, opt_ins: OptIns = NO_OPT_INS
) -> tuple[Gpu, ...]:
    """The usable cards of one maker: no integrated GPU before a card, then by memory, then index.

    Memory is a card's own, in whole GiB, so that two cards of a kind keep their order.
    """
    cards = _of_one_vendor(hardware, backend, opt_ins)
    return tuple(sorted(cards, key=lambda g: (g.integrated, -round(g.vram_gib), g.index)))


def together(
    hardware: Hardware, backend: str | None = None, opt_ins: OptIns = NO_OPT_INS
) -> tuple[Gpu, ...]:
    """The cards that may share a model, best first; none when there are fewer than two.

    They are of one maker, not integrated, and of "8 GB" or more. The newest NVIDIA generation goes
    first, then the most memory, then the lower index. Several AMD cards work on Linux only.
    """
    cards = [
        gpu
        for gpu in _of_one_vendor(hardware, backend, opt_ins)
        if not gpu.integrated and gpu.vram_gib >= SHARE_GIB
        if gpu.vendor == "nvidia" or hardware.os == "linux"
    ]
    return tuple(sorted(cards, key=_rank)) if len(cards) >= 2 else ()


def card_options(
    hardware: Hardware,
    row: ModelRow,
    backend: str | None = None,
    opt_ins: OptIns = NO_OPT_INS,
) -> tuple[CardOption, ...]:
    """The menu: the best two together, then all, then each card alone. Empty without a card."""
    picked = pick(hardware, row, backend, opt_ins)
    if not picked.cards:
        return ()
    shared = () if row.one_card else together(hardware, backend, opt_ins)
    sets = [shared[:2]] if shared else []
    sets += [shared] if len(shared) > 2 else []
    sets += [(gpu,) for gpu in singles(hardware, backend, opt_ins)]
    return tuple(CardOption(cards, describe(cards), cards == picked.cards) for cards in sets)


def pick(
    hardware: Hardware,
    row: ModelRow,
    backend: str | None = None,
    opt_ins: OptIns = NO_OPT_INS,
) -> Pick:
    """The recommended cards for `row`. No cards: none is usable, and the reason is empty."""
    alone = singles(hardware, backend, opt_ins)
    if not alone or (row.nvidia_only and alone[0].vendor != "nvidia"):
        return Pick((), "")
    shared = together(hardware, backend, opt_ins)
    best = Pick(alone[:1], f"{describe(alone[:1])}: {_why_alone(alone)}")
    if not shared:
        return best
    if row.one_card:
        return Pick(best.cards, f"{best.reason}; {row.title} runs on one card")
    fits, budget_reason = budget_split(row, hardware.ram_gib) if row.budget else (True, "")
    if not fits:
        return Pick(best.cards, f"{best.reason}; {budget_reason}")
    profile = matching_profile(load_profiles(), shared, row.key)
    if profile is not None:
        return Pick(shared, f"{describe(shared)}: measured together, profile {profile.name}")
    if shared[0].vendor == "amd":
        return Pick(best.cards, f"{best.reason}; several AMD cards share a model when --gpus says")
    return _pair(shared)


def describe(cards: Iterable[Gpu]) -> str:
    """Cards in words, with their memory and its sum."""
    cards = tuple(cards)
    names = " + ".join(title(gpu) for gpu in cards)
    total = sum(gpu.vram_gib for gpu in cards)
    return f"{names} together, {total:.1f} GiB" if len(cards) > 1 else f"{names} alone"


def _pair(shared: tuple[Gpu, ...]) -> Pick:
    first, second = shared[:2]
    if first.vram_gib >= PROMPT_GIB > second.vram_gib:
        return Pick(
            (first,),
            f"{describe((first,))}: beside it GPU {second.index} with {second.vram_gib:.1f} GiB, "
            "less than 12 GB, would hold the prompt chunks of a split down (the original measured "
            "prompts 6.2 times slower on 32 + 10 GB)",
        )
    more = f", the best two of {len(shared)}" if len(shared) > 2 else ""
    return Pick(
        shared[:2],
        f"{describe(shared[:2])}{more}: each holds the experts of its own layers",
    )


def _why_alone(cards: tuple[Gpu, ...]) -> str:
    maker = MAKERS[cards[0].vendor]
    if len(cards) == 1:
        return f"the only usable {maker} card"
    return f"the most memory of {len(cards)} usable {maker} cards"


def _of_one_vendor(hardware: Hardware, backend: str | None, opt_ins: OptIns) -> tuple[Gpu, ...]:
    wanted = vendor_of(backend) or next(iter(vendors(hardware, opt_ins)), None)
    return tuple(gpu for gpu in usable_cards(hardware, opt_ins) if gpu.vendor == wanted)


def _rank(gpu: Gpu) -> tuple[int, int, int, int]:
    major, minor = capability(gpu) or (0, 0)
    return (-major, -minor, -round(gpu.vram_gib), gpu.index)
