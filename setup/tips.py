"""Notes beside a recommendation: what to look out for, and what else may help."""

from __future__ import annotations

from engine.capabilities import Capabilities
from engine.card_memory import CardPlan
from engine.hardware import Hardware
from setup.asked import Asked
from setup.models.catalogue import ModelRow
from setup.rule_choice import RuleChoice
from setup.rules.card_verdict import sizing_gib
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
from setup.rules.groups import groups_tip
from setup.rules.slots import parallel_messages, slot_gb
from setup.rules.workers import socket_tip


def tips(
    row: ModelRow,
    hardware: Hardware,
    choice: RuleChoice,
    asked: Asked,
    cards: tuple[CardPlan, ...],
    capabilities: Capabilities,
) -> tuple[str, ...]:
    """The sentences that apply, warnings first, `parallel` last.

    A tip about a feature that this version lacks is not given: following it would do nothing.
    """
    sizes = tuple(sizing_gib(card, hardware) for card in choice.cards)
    backend = choice.cards[0].backend if choice.cards else ""
    always: tuple[str | None, ...] = (
        *hardware.notes,
        *(_too_small(card) for card in cards if not card.fits),
    )
    with_feature: tuple[tuple[str, str | None], ...] = (
        ("cuda", page_file_warning(hardware)),
        (backend, slow_card_warning(sizes) if sizes else None),
        ("vision", vision_reserve_tip(sizes) if asked.vision else None),
        ("draft_vocab", small_card_tip(sizes)),
        ("vram_reserve", display_tip(choice.cards)),
        ("vram_reserve", amd_desktop_tip(choice.cards, hardware.os, hardware.desktop)),
        ("draft_vocab", draft_vocab_tip(sizes, asked.draft_vocab)),
        ("conversation_cache", conversation_cache_tip(row, hardware.ram_gib)),
        (backend, prefill_tip(hardware.ram_gib) if sizes else None),
        ("workers", socket_tip(hardware.cpu)),
        ("batch_groups", _groups_tip(choice, asked, cards)),
    )
    found = (
        *always,
        *(tip for feature, tip in with_feature if tip and capabilities.has(feature)),
        *(_parallel(row, choice, asked) if backend and capabilities.has(backend) else ()),
    )
    return tuple(sentence for sentence in found if sentence)


def _parallel(row: ModelRow, choice: RuleChoice, asked: Asked) -> tuple[str, ...]:
    filled = choice.fill is not None and "parallel" in choice.fill.config
    if not choice.cards or filled:
        return ()
    slot = slot_gb(row, choice.context, choice.kv, choice.streaming)
    return parallel_messages(asked.parallel, choice.parallel, slot)


def _groups_tip(choice: RuleChoice, asked: Asked, cards: tuple[CardPlan, ...]) -> str | None:
    slots = choice.parallel if asked.parallel is None else asked.parallel
    all_resident = all(card.resident == card.experts for card in cards)
    return groups_tip(slots, len(cards), all_resident)


def _too_small(card: CardPlan) -> str:
    return (
        f"{card.name} is too small: {card.fixed_bytes / 1e9:.1f} GB are needed before any expert, "
        f"it has {card.vram_bytes / 1e9:.1f}; try a smaller --context or fewer --parallel"
    )
