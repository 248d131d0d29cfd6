"""Small rules and tips: each names one setting and says when it pays.

A tip is a sentence; nothing is written for it. Memory of cards and machines is GiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.hardware import Gpu, Hardware
from setup.models.catalogue import ModelRow
from setup.rules.sums import compared

SLOW_CARD_GIB: Final = 11.0
SMALL_CARD_GIB: Final = 7.5
PAGE_FILE_GIB: Final = 4.0
PLE_SPARE_GIB: Final = 4.0
LONG_PREFILL: Final = "auto:32768"
LONG_PREFILL_GIB: Final = 96.0
VISION_RESERVE_MIB: Final = 700
VISION_SMALL_CARD_GIB: Final = 12.5
VISION_SMALL_CARD_RESERVE_MIB: Final = 1000
DISPLAY_RESERVE_MIB: Final = 1500
AMD_DESKTOP_RESERVE_MIB: Final = 3072
CONVERSATION_CACHE_MIB: Final = 8192
CONVERSATION_CACHE_SPARE_GIB: Final = 24.0


def slow_card_warning(cards_gib: Sequence[float]) -> str | None:
    """A warning when the largest chosen card is small."""
    if not cards_gib or max(cards_gib) >= SLOW_CARD_GIB:
        return None
    return f"the card has {max(cards_gib):.1f} GiB, less than 12 GB: answers will be slow"


def small_card_tip(cards_gib: Sequence[float]) -> str | None:
    """What to try on a very small card."""
    if not cards_gib or min(cards_gib) >= SMALL_CARD_GIB:
        return None
    return (
        f"a card has {min(cards_gib):.1f} GiB (under {SMALL_CARD_GIB:g}): try --context 8192 and "
        "--draft-vocab en"
    )


def page_file_warning(hardware: Hardware) -> str | None:
    """Windows charges the memory of cards to the commit limit, so a page file is needed."""
    swap = hardware.swap_bytes / (1 << 30)
    if hardware.os != "windows" or not hardware.gpus or swap >= PAGE_FILE_GIB:
        return None
    return (
        f"the page file has {swap:.1f} GiB (under {PAGE_FILE_GIB:g}): Windows counts the memory of "
        "cards against RAM and page file together; let Windows manage its size"
    )


def ple_io(row: ModelRow, ram_gib: float, rotational: bool) -> tuple[str | None, str]:
    """`ram` when the n-gram table should be read into memory, and why."""
    if not row.table_gb:
        return None, f"ple-io: {row.key} has no n-gram table"
    if not rotational:
        return None, "ple-io: the disk does not turn, the n-gram table is read from it"
    need = row.ram_gib + row.table_gb + PLE_SPARE_GIB
    parts = f"{row.ram_gib:.3g} GiB + {row.table_gb:.3g} GB + {PLE_SPARE_GIB:g} GiB"
    sums = compared(parts, need, ram_gib)
    if ram_gib < need:
        return None, f"ple-io: the disk turns, but RAM has no room for the n-gram table, {sums}"
    return "ram", f"ple-io ram: the disk turns, and RAM holds the n-gram table, {sums}"


def prefill_tip(ram_gib: float) -> str | None:
    """When reading prompts in long pieces may help."""
    if ram_gib < LONG_PREFILL_GIB:
        return None
    return f"--prefill {LONG_PREFILL} may read long prompts faster with {ram_gib:.1f} GiB of RAM"


def conversation_cache_tip(row: ModelRow, ram_gib: float) -> str | None:
    """When finished conversations may wait in RAM."""
    spare = ram_gib - row.ram_gib
    if spare < CONVERSATION_CACHE_SPARE_GIB:
        return None
    return (
        f"RAM has {ram_gib:.1f} - {row.ram_gib:.3g} = {spare:.1f} GiB to spare: "
        f"--conversation-cache-mib {CONVERSATION_CACHE_MIB} keeps finished conversations at hand"
    )


def vision_reserve_tip(cards_gib: Sequence[float]) -> str | None:
    """With images: how much to keep free on a small card."""
    if not cards_gib or min(cards_gib) > VISION_SMALL_CARD_GIB:
        return None
    return (
        f"images on a card with {min(cards_gib):.1f} GiB (up to {VISION_SMALL_CARD_GIB:g}): "
        f"--vram-reserve-mib {VISION_SMALL_CARD_RESERVE_MIB} leaves more room than "
        f"{VISION_RESERVE_MIB}"
    )


def display_tip(cards: Sequence[Gpu]) -> str | None:
    """A screen needs memory of the card it is attached to."""
    shown = next((card for card in cards if card.display and card.vendor == "nvidia"), None)
    if shown is None:
        return None
    return (
        f"a screen is attached to {shown.name}: --vram-reserve-mib {DISPLAY_RESERVE_MIB} leaves it "
        "room"
    )


def amd_desktop_tip(cards: Sequence[Gpu], os: str, desktop: bool) -> str | None:
    """A Linux desktop needs much memory of an AMD card."""
    if os != "linux" or not desktop or not any(card.vendor == "amd" for card in cards):
        return None
    return (
        f"a desktop runs on this machine: --vram-reserve-mib {AMD_DESKTOP_RESERVE_MIB} leaves it "
        "room on an AMD card"
    )
