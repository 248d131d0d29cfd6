"""The cards that a model runs on: the user's, checked, or the recommended ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from engine.errors import ConfigError
from engine.hardware import Gpu, Hardware
from setup.models.catalogue import ModelRow
from setup.rules.card_menu import (
    SHARE_GIB,
    describe,
    pick,
    singles,
    together,
    vendor_of,
    vendors,
)
from setup.rules.card_verdict import (
    NO_OPT_INS,
    OptIns,
    identity,
    is_old,
    needs_cuda12,
    title,
    verdict,
)

SMALL_GIB = 5.5
"""Below it ("6 GB") a card is too small for most models."""


@dataclass(frozen=True, slots=True)
class CardChoice:
    """The cards to use, the one with layer 0 first; none: no usable card."""

    cards: tuple[Gpu, ...]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    cuda12: bool = False
    """The oldest card needs a build for CUDA 12 (the config's `cuda`: 12)."""


def choose_cards(
    hardware: Hardware,
    row: ModelRow,
    gpus: tuple[int, ...] | Literal["all"] | None,
    backend: str | None = None,
    opt_ins: OptIns = NO_OPT_INS,
) -> CardChoice:
    """The cards for `row`: those of `gpus` (`Gpu.index`, in this order), or the recommended ones.

    A card that only lacks memory is kept with a warning. Raises `ConfigError` for a card that is
    missing, named twice or of no use, and for cards that cannot share a model; the hint says what
    works. `backend` is cuda, hip, cpu (no card) or nothing.
    """
    if backend == "cpu":
        return CardChoice((), ("no card: the CPU was asked for",), ())
    if gpus is None:
        picked = pick(hardware, row, backend, opt_ins)
        cards, reason = picked.cards, picked.reason or _no_card(hardware, row, backend, opt_ins)
    elif gpus == "all":
        cards = _all(hardware, backend, opt_ins)
        reason = f"{describe(cards)}: every card that may share a model, as asked"
    else:
        cards = _named(hardware, gpus, backend, opt_ins)
        reason = f"{describe(cards)}: as asked"
    _check_row(cards, row, hardware)
    left_out = _left_out(hardware, cards, opt_ins)
    return CardChoice(
        cards,
        (reason, *_other_vendor(hardware, cards, backend, opt_ins), *left_out[True]),
        (*left_out[False], *_doubts(cards)),
        needs_cuda12(cards, opt_ins),
    )


def _all(hardware: Hardware, backend: str | None, opt_ins: OptIns) -> tuple[Gpu, ...]:
    cards = together(hardware, backend, opt_ins)
    if not cards:
        raise ConfigError(
            f"--gpus all: this machine does not have two cards that can share a model, of one "
            f"maker and {SHARE_GIB:.1f} GiB or more each",
            _what_works(hardware, opt_ins),
        )
    return cards


def _named(
    hardware: Hardware, gpus: tuple[int, ...], backend: str | None, opt_ins: OptIns
) -> tuple[Gpu, ...]:
    hint = _what_works(hardware, opt_ins)
    if not gpus:
        raise ConfigError("--gpus names no card", hint)
    cards = tuple(_find(hardware, index, backend, opt_ins) for index in gpus)
    if len({identity(gpu) for gpu in cards}) < len(cards):
        raise ConfigError(
            f"--gpus {_listed(gpus)} names a card twice: a card holds one stage of a split", hint
        )
    for gpu in cards:
        found = verdict(gpu, hardware, named=True, opt_ins=opt_ins)
        if not found.usable:
            raise ConfigError(f"{title(gpu)} cannot be used: {found.reason}", hint)
    return cards


def _find(hardware: Hardware, index: int, backend: str | None, opt_ins: OptIns) -> Gpu:
    """The card with this number. Makers number from 0 each: the recommended maker's card wins."""
    wanted = vendor_of(backend)
    found = [g for g in hardware.gpus if g.index == index and wanted in (None, g.vendor)]
    if not found:
        of = f" of the backend {backend}" if wanted else ""
        have = ", ".join(f"{g.index} = {g.name}" for g in hardware.gpus) or "none"
        raise ConfigError(
            f"there is no GPU {index}{of}; this machine has: {have}",
            _what_works(hardware, opt_ins),
        )
    order = vendors(hardware, opt_ins)
    return min(found, key=lambda g: order.index(g.vendor) if g.vendor in order else len(order))


def _check_row(cards: tuple[Gpu, ...], row: ModelRow, hardware: Hardware) -> None:
    """Raises `ConfigError` for cards that cannot run this model, or not together."""
    makers = {gpu.vendor for gpu in cards}
    if len(makers) > 1:
        raise ConfigError(
            f"{describe(cards)}: cards of two makers cannot share a model",
            "name cards of one maker; --backend cuda or --backend hip says which",
        )
    if len(cards) > 1 and row.one_card:
        raise ConfigError(
            f"{row.title} runs on one card, {len(cards)} were named",
            "name one: " + " or ".join(f"--gpu {gpu.index}" for gpu in cards),
        )
    if row.nvidia_only and "amd" in makers:
        raise ConfigError(f"{row.key} runs on NVIDIA cards only", "choose another size")
    if len(cards) > 1 and makers == {"amd"} and hardware.os != "linux":
        raise ConfigError(
            f"several AMD cards share a model on Linux only, this is {hardware.os}",
            "name one: " + " or ".join(f"--gpu {gpu.index}" for gpu in cards),
        )


def _no_card(hardware: Hardware, row: ModelRow, backend: str | None, opt_ins: OptIns) -> str:
    if vendor_of(backend):
        raise ConfigError(
            f"--backend {backend}: this machine has no usable card of that maker",
            _what_works(hardware, opt_ins),
        )
    if row.nvidia_only and vendors(hardware, opt_ins):
        return f"no card: {row.key} runs on NVIDIA cards only, and none is usable"
    return "no card: none of this machine is usable" if hardware.gpus else "no card was found"


def _what_works(hardware: Hardware, opt_ins: OptIns) -> str:
    shared = together(hardware, opt_ins=opt_ins)
    ones = " or ".join(f"--gpu {g.index}" for g in singles(hardware, opt_ins=opt_ins))
    if shared:
        return f"use together --gpus {_listed(g.index for g in shared)}, or one card: {ones}"
    if ones:
        return f"use one card: {ones}"
    return "needed is an NVIDIA card of the RTX 20 series or newer, or a supported AMD card"


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(str(number) for number in numbers)


def _other_vendor(
    hardware: Hardware, cards: tuple[Gpu, ...], backend: str | None, opt_ins: OptIns
) -> tuple[str, ...]:
    if not cards or backend is not None or len(vendors(hardware, opt_ins)) < 2:
        return ()
    return (
        "NVIDIA and AMD cards are both usable, and cannot share a model: "
        "--backend cuda or --backend hip says which",
    )


def _left_out(
    hardware: Hardware, cards: tuple[Gpu, ...], opt_ins: OptIns
) -> dict[bool, tuple[str, ...]]:
    """A sentence for each card that is not usable: integrated GPUs, and the others, which are
    worth a warning."""
    used = {identity(gpu) for gpu in cards}
    found = [(gpu, verdict(gpu, hardware, opt_ins=opt_ins)) for gpu in hardware.gpus]
    return {
        integrated: tuple(
            f"{title(gpu)} is not used: {its.reason}"
            for gpu, its in found
            if not its.usable and gpu.integrated is integrated and identity(gpu) not in used
        )
        for integrated in (True, False)
    }


def _doubts(cards: tuple[Gpu, ...]) -> tuple[str, ...]:
    """What a chosen card risks, one sentence each."""
    return tuple(f"{title(gpu)}: {doubt}" for gpu in cards for doubt in _doubts_of(gpu, len(cards)))


def _doubts_of(gpu: Gpu, cards: int) -> Iterator[str]:
    if gpu.vram_gib < SMALL_GIB and not gpu.integrated:
        yield "less than 6 GB of memory, too small for most models"
    if cards > 1 and gpu.vram_gib < SHARE_GIB:
        yield (
            "a card that shares a model should have 8 GB or more for the dense weights of its "
            "layers and its prompt buffers; kept, as asked"
        )
    if cards > 1 and gpu.integrated:
        yield "an integrated GPU works at the speed of the machine's memory; kept, as asked"
    if is_old(gpu):
        yield "Pascal and Volta cards need a build for CUDA 12, which is experimental"
    if gpu.compute_mode not in ("", "Default"):
        yield f"its compute mode is {gpu.compute_mode}, other programs or this one may be refused"
