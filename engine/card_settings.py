"""A card's settings: how much of it is used, and what for, with reasons."""

from __future__ import annotations

from engine.capabilities import Capabilities
from engine.config import TABLE_PLACES, CardConfig, Decision, RunConfig, TablePlace
from engine.device_memory import RESERVE_MIB, CardRoom
from engine.hardware import Gpu
from engine.memory import MIB, CardShare

DEFAULT_ADAPT_EVERY = 4
DEFAULT_ADAPT_SWAPS = 2
DEFAULT_ADAPT_DECAY = 0.97
CARD_FIELDS = (
    "vram_limit_mib",
    "vram_reserve_mib",
    "expert_cache",
    "table_place",
    "adapt_every",
    "adapt_swaps",
    "adapt_decay",
)
"""The fields of `RunConfig` that say something about a card."""


def card_room(run: RunConfig, card: Gpu, host_bytes: int, capabilities: Capabilities) -> CardRoom:
    """What the engine may take of a card, and of the machine's memory beside it."""
    base, reserve = _base_mib(run, card), _reserve_mib(run)
    asked = run.expert_cache
    return CardRoom(
        name=card.name,
        limit_bytes=max(0, base - reserve) * MIB,
        host_bytes=host_bytes,
        keeps_experts=capabilities.has("expert_cache"),
        expert_cache_bytes=None if asked in (None, "auto") else int(asked) * MIB,
        table_place=next((place for place in TABLE_PLACES if place == run.table_place), None),
    )


def card_config(run: RunConfig, card: Gpu, room: CardRoom, share: CardShare) -> CardConfig:
    """The settings of an engine on this card with that share of its memory."""
    whole = share.resident_experts == share.layer_experts
    every = DEFAULT_ADAPT_EVERY if run.adapt_every is None else run.adapt_every
    swaps = DEFAULT_ADAPT_SWAPS if run.adapt_swaps is None else run.adapt_swaps
    return CardConfig(
        identity=card.uuid if card.uuid.startswith(("GPU-", "MIG-")) else str(card.index),
        vram_limit_mib=room.limit_bytes // MIB,
        expert_cache_bytes=share.expert_bytes,
        resident_experts=share.resident_experts,
        keeps_all_experts=whole,
        table_place=_table_place(run, share),
        adapt_every=0 if whole else every,
        adapt_swaps=0 if whole else swaps,
        adapt_decay=DEFAULT_ADAPT_DECAY if run.adapt_decay is None else run.adapt_decay,
        checkpoints=share.checkpoints,
    )


def card_decisions(
    run: RunConfig, card: Gpu, config: CardConfig, share: CardShare, capabilities: Capabilities
) -> tuple[Decision, ...]:
    """How the settings came about; what has no meaning for this model only where it was asked."""
    found = [_limit(run, card), _reserve(run)]
    if share.all_expert_bytes:
        found.append(_experts(run, share, capabilities))
    if share.all_table_bytes or run.table_place:
        found.append(_place(run, config, share))
    whole = share.resident_experts == share.layer_experts
    for name in ("adapt_every", "adapt_swaps", "adapt_decay"):
        asked, value = getattr(run, name), getattr(config, name)
        if whole and asked is not None:
            found.append(Decision(name, asked, value, "all experts lie on the card"))
        elif not whole:
            reason = "the default" if asked is None else "as asked"
            found.append(Decision(name, asked, value, reason))
    return tuple(found)


def _base_mib(run: RunConfig, card: Gpu) -> int:
    free = (card.vram_free_bytes or card.vram_bytes) // MIB
    return free if run.vram_limit_mib is None else min(free, run.vram_limit_mib)


def _reserve_mib(run: RunConfig) -> int:
    return RESERVE_MIB if run.vram_reserve_mib is None else run.vram_reserve_mib


def _limit(run: RunConfig, card: Gpu) -> Decision:
    base, asked = _base_mib(run, card), run.vram_limit_mib
    reason = "as asked" if base == asked else "what is free on the card"
    return Decision("vram_limit_mib", asked, base, reason)


def _reserve(run: RunConfig) -> Decision:
    asked = run.vram_reserve_mib
    reason = "the default" if asked is None else "as asked"
    return Decision("vram_reserve_mib", asked, _reserve_mib(run), f"{reason}: stays free")


def _experts(run: RunConfig, share: CardShare, capabilities: Capabilities) -> Decision:
    asked, value = run.expert_cache, -(-share.expert_bytes // MIB)
    if asked == "auto":
        asked = None
    if not capabilities.has("expert_cache"):
        missing = capabilities.missing("expert_cache")
        return Decision("expert_cache", asked, value, f"all experts: {missing}")
    count, of = share.resident_experts, share.layer_experts
    if count == of:
        return Decision("expert_cache", asked, value, "all experts lie on the card")
    # Whole experts of every layer: a little less than was asked for is what was asked for.
    heeded = asked is not None and 0 <= int(asked) - value <= share.all_expert_bytes // of // MIB
    why = "as asked" if heeded else "as many as fit"
    reason = f"{why}: {count} of the {of} experts of each layer"
    return Decision("expert_cache", str(value) if heeded else asked, value, reason)


def _table_place(run: RunConfig, share: CardShare) -> TablePlace:
    if run.table_place == "ram" or share.table_bytes < share.all_table_bytes:
        return "ram"
    return "vram"


def _place(run: RunConfig, config: CardConfig, share: CardShare) -> Decision:
    size = f"the n-gram table has {share.all_table_bytes / 1e9:.1f} GB"
    reason = "as asked" if run.table_place else "beside all experts" * bool(share.table_bytes)
    reason = reason or "no room on the card"
    return Decision("table_place", run.table_place, config.table_place, f"{reason}: {size}")
