"""All tips for one machine, each with the engine's feature that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.hardware import Gpu, Hardware
from setup.catalogue import ModelRow
from setup.rules.draft_vocab import draft_vocab_tip
from setup.rules.extras import (
    amd_desktop_tip,
    conversation_cache_tip,
    display_tip,
    page_file_warning,
    prefill_tip,
    slow_card_warning,
    small_card_tip,
    vision_reserve_tip,
)
from setup.rules.workers import socket_tip


@dataclass(frozen=True, slots=True)
class Tip:
    """A sentence that is of use only to an engine with that feature of `engine/capabilities.py`."""

    feature: str
    text: str


def tips(
    row: ModelRow,
    hardware: Hardware,
    cards: Sequence[Gpu],
    *,
    draft_vocab: str | None = None,
    prefill: str | None = None,
    images: bool = False,
    reserve_mib: int | None = None,
) -> tuple[Tip, ...]:
    """What else to know about `row` on the chosen `cards`. The last four are what was asked."""
    sizes = [card.vram_gib for card in cards]
    backend = "hip" if any(card.vendor == "amd" for card in cards) else "cuda"
    vocabulary = draft_vocab_tip(sizes, draft_vocab)
    found: list[tuple[str, str | None]] = [
        (backend, slow_card_warning(sizes)),
        (backend, page_file_warning(hardware)),
        ("draft_vocab", small_card_tip(sizes) or vocabulary),
        ("expert_cache", prefill_tip(hardware.ram_gib, prefill)),
        ("workers", socket_tip(hardware.cpu)),
        ("conversation_cache", conversation_cache_tip(row, hardware.ram_gib)),
    ]
    if reserve_mib is None:
        found += [
            ("vram_reserve", vision_reserve_tip(sizes) if images else None),
            ("vram_reserve", display_tip(cards)),
            ("vram_reserve", amd_desktop_tip(cards, hardware.os, hardware.desktop)),
        ]
    return tuple(Tip(feature, text) for feature, text in found if text is not None)
