"""What the rules put on each card: the placement of the layers, and a memory table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.card_memory import HEAD_SHARE, RESERVE_BYTES, CardPlan, plan_cards
from engine.hardware import Hardware
from engine.layer_split import even_split, parse_layer_split
from engine.memory import GIB
from engine.model_info import ModelInfo
from setup.asked import Asked
from setup.rule_choice import RuleChoice
from setup.rules.auto_split import AutoSplit, auto_split
from setup.rules.card_speed import layer_ms
from setup.rules.card_verdict import sizing_gib

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Placement:
    """A plan for each chosen card in the order of the layers, and `auto` where it placed them."""

    plans: tuple[CardPlan, ...]
    auto: AutoSplit | None


def place(info: ModelInfo, hardware: Hardware, choice: RuleChoice, asked: Asked) -> Placement:
    """The layers on the chosen cards; no plans without cards."""
    if not choice.cards:
        return Placement((), None)
    cards = [(card.name, int(sizing_gib(card, hardware) * GIB)) for card in choice.stages]

    def plans(cards: Sequence[tuple[str, int]], first_layers: Sequence[int]) -> list[CardPlan]:
        reserve = asked.vram_reserve_mib
        return list(
            plan_cards(
                info,
                cards,
                first_layers,
                kv=choice.kv,
                slots=max(1, choice.parallel if asked.parallel is None else asked.parallel),
                max_context=choice.context,
                kv_resident=choice.kv_resident,
                reserve_bytes=RESERVE_BYTES if reserve is None else reserve * _MIB,
            )
        )

    points = parse_layer_split(choice.layer_split, len(cards), info.layers)
    if points is not None or len(cards) == 1 or not info.expert_pairs:
        split = even_split(info.layers, len(cards)) if points is None else points
        return Placement(tuple(plans(cards, split)), None)
    auto = _auto(info, choice, [size for _, size in cards], plans([("", 0)], ())[0])
    return Placement(tuple(plans(cards, auto.first_layers)), auto)


def _auto(info: ModelInfo, choice: RuleChoice, sizes: list[int], whole: CardPlan) -> AutoSplit:
    """Where the cost model puts the layers. `whole` is the model as one card would hold it: its
    fixed costs come with each layer, with each card, or (head and draft layer) with the last."""
    head = int(info.dense_bytes * HEAD_SHARE)
    by_layer = whole.dense_bytes - head + whole.kv_bytes + whole.state_bytes
    rooms = [size - whole.buffer_bytes - whole.reserve_bytes for size in sizes]
    rooms[-1] -= head + whole.draft_bytes
    return auto_split(
        info.layers,
        info.expert_pairs // info.layers,
        info.expert_bytes // info.expert_pairs,
        rooms,
        layer_ms(choice.stages),
        by_layer // info.layers,
    )
