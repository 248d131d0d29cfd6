"""The memory table of each card for what the rules chose."""

from __future__ import annotations

from engine.card_memory import RESERVE_BYTES, CardPlan, plan_cards
from engine.hardware import Hardware
from engine.layer_split import even_split, parse_layer_split
from engine.model_info import ModelInfo
from setup.asked import Asked
from setup.rule_choice import RuleChoice
from setup.rules.auto_split import auto_split
from setup.rules.card_speed import layer_ms
from setup.rules.cards import sizing_gib

_MIB = 1 << 20
_GIB = 1 << 30


def card_plans(
    info: ModelInfo, hardware: Hardware, choice: RuleChoice, asked: Asked
) -> tuple[CardPlan, ...]:
    """A plan for each chosen card, in the order of the layers; none without cards."""
    if not choice.cards:
        return ()
    reserve = asked.vram_reserve_mib
    sizes = [int(sizing_gib(card, hardware) * _GIB) for card in choice.cards]
    slots = max(1, asked.parallel if asked.parallel is not None else choice.parallel)
    return plan_cards(
        info,
        [(card.name, size) for card, size in zip(choice.cards, sizes, strict=True)],
        _first_layers(info, choice, sizes),
        kv=choice.kv,
        slots=slots,
        max_context=choice.context,
        kv_resident=choice.kv_resident,
        reserve_bytes=RESERVE_BYTES if reserve is None else reserve * _MIB,
    )


def _first_layers(info: ModelInfo, choice: RuleChoice, sizes: list[int]) -> tuple[int, ...]:
    """The first layer of each later card; `auto` asks the cost model."""
    count = len(choice.cards)
    points = parse_layer_split(choice.layer_split, count, info.layers)
    if points is not None:
        return points
    if count == 1 or not info.expert_pairs:
        return even_split(info.layers, count)
    fixed = info.dense_bytes // count
    rooms = [max(0, size - fixed) for size in sizes]
    pair = info.expert_bytes // info.expert_pairs
    found = auto_split(
        info.layers, info.expert_pairs // info.layers, pair, rooms, layer_ms(choice.cards)
    )
    return found.first_layers
