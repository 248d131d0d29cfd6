"""Low-memory modes: what to do when the experts do not fit in RAM.

Cards and RAM are GiB, the arena (the routed experts) is decimal GB, and both are added as they are:
that is how the original's setup 0.1.40 does it, and its answers are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from engine.errors import ConfigError
from setup.models.catalogue import ModelRow, spare_gib
from setup.rules.cells import cell_bytes
from setup.rules.kv import DRAFT_LAYERS
from setup.rules.sums import amount, compared, number, total

CARD_OVERHEAD_GIB: Final = 5.0
"""Dense weights, buffers and keys and values of 32K tokens on each card."""
OVERHEAD_CONTEXT: Final = 32_768
FITS_SPARE_GIB: Final = 6.0
SLOW_SHARE: Final = 0.6
PAGING_SLACK_GIB: Final = 4.0
IMAGES_GIB: Final = 700 / 1024

Mode = Literal["resident", "mmap"]
ANSWERS: Final = ("auto", "on", "off", "resident", "mmap")


@dataclass(frozen=True, slots=True)
class LowRam:
    """`mode` None: the usual way. `fits`: cards and RAM hold the experts between them."""

    needed: bool
    gpu_gb: float
    """Decimal GB of experts on the cards."""
    mode: Mode | None
    fits: bool
    reason: str


def low_ram(
    row: ModelRow,
    ram_gib: float,
    cards_gib: Sequence[float],
    context: int,
    kv: str,
    asked: str = "auto",
    *,
    images: bool = False,
) -> LowRam:
    """The mode for this machine, or the one `asked` for. `ConfigError` for an unknown answer."""
    if asked not in ANSWERS:
        raise ConfigError(f"low-ram is {asked!r}, allowed is one of {', '.join(ANSWERS)}")
    cards = _without_images(cards_gib) if images else tuple(cards_gib)
    held = gpu_gb(row, cards, context, kv)
    fits = ram_gib - FITS_SPARE_GIB + sum(_room(card) for card in cards) >= row.arena_gb
    if row.budget:
        reason = f"no low-memory mode: {row.key} keeps its experts within a budget of RAM"
        return LowRam(False, held, None, fits, reason)
    spare = spare_gib(row.download_gb)
    need = row.arena_gb + spare
    sums = compared(f"{amount(row.arena_gb)} + {number(spare)} GiB", need, ram_gib)
    if asked == "off":
        return LowRam(False, held, None, fits, f"no low-memory mode, as asked: {sums}")
    if asked == "auto" and ram_gib >= need:
        return LowRam(False, held, None, fits, f"no low-memory mode: RAM holds all experts, {sums}")
    return _needed(row, ram_gib, held, fits, asked)


def gpu_gb(row: ModelRow, cards_gib: Sequence[float], context: int, kv: str) -> float:
    """Decimal GB of experts that the cards hold: never more than all of them."""
    beyond = max(0, context - OVERHEAD_CONTEXT)
    cells_gb = beyond * (row.attention_layers + DRAFT_LAYERS) * cell_bytes(kv) / 1e9
    return min(row.arena_gb, sum(max(0.0, _room(card) - cells_gb) for card in cards_gib))


def slow_share(row: ModelRow, found: LowRam) -> str | None:
    """A warning when most experts will be read from the disk."""
    share = found.gpu_gb / row.arena_gb if row.arena_gb else 1.0
    if found.mode != "mmap" or share >= SLOW_SHARE:
        return None
    held = f"{total(found.gpu_gb)} of {amount(row.arena_gb)} of experts"
    return (
        f"the cards hold {held} ({share:.0%}, under {SLOW_SHARE:.0%}): the rest is read from the "
        "disk, which is slow"
    )


def paging_risk(row: ModelRow, ram_gib: float, asked: str) -> str | None:
    """What `--low-ram off` risks on a machine with too little RAM."""
    line = row.ram_gib - PAGING_SLACK_GIB
    if asked != "off" or ram_gib >= line:
        return None
    return (
        f"{row.key} without a low-memory mode needs about {row.ram_gib:.3g} GiB, this machine has "
        f"{ram_gib:.1f}: it may page to the disk all the time"
    )


def _needed(row: ModelRow, ram_gib: float, held: float, fits: bool, asked: str) -> LowRam:
    spare = spare_gib(row.download_gb)
    need = row.arena_gb - held + spare
    by_rule: Mode = "resident" if ram_gib >= need else "mmap"
    mode: Mode = "resident" if asked == "resident" else "mmap" if asked == "mmap" else by_rule
    parts = f"{number(row.arena_gb)} - {total(held)} GB + {number(spare)} GiB"
    sums = compared(parts, need, ram_gib)
    where = (
        "experts that no card holds stay in RAM"
        if mode == "resident"
        else "experts that no card holds are read from the file"
    )
    told = "" if asked == "auto" else ", as asked"
    better = "" if mode == by_rule else f"; recommended is {by_rule}"
    return LowRam(True, held, mode, fits, f"low memory, {mode}{told}: {where}, {sums}{better}")


def _room(card_gib: float) -> float:
    return max(0.0, card_gib - CARD_OVERHEAD_GIB)


def _without_images(cards_gib: Sequence[float]) -> tuple[float, ...]:
    """The encoder of images takes its memory from the first card."""
    return tuple(card - (IMAGES_GIB if i == 0 else 0) for i, card in enumerate(cards_gib))
