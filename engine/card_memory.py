"""What one card holds: fixed costs first, then as many routed experts as there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.device_memory import RESERVE_MIB
from engine.memory import MIB, token_bytes
from engine.model_info import ModelInfo

PREFILL_BUFFER_BYTES = 1_500_000_000
"""Buffers of a prompt chunk of 2,048 tokens; a shorter chunk takes its share. Source: the
published measurements of layer splits."""
PREFILL_TOKENS = 2_048
RESERVE_BYTES = RESERVE_MIB * MIB
HEAD_SHARE = 0.22
"""The output head's part of the dense weights (0.8 of 3.7 GB): it lies on the last card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPlan:
    """Bytes on one card. `layers` are the first layer and the one after the last."""

    name: str
    vram_bytes: int
    layers: tuple[int, int]
    dense_bytes: int
    kv_bytes: int
    state_bytes: int
    """Recurrent state of all slots."""
    draft_bytes: int
    buffer_bytes: int
    reserve_bytes: int
    expert_bytes: int
    """One routed expert of one layer."""
    experts: int
    """Pairs of a layer and an expert that belong to this card."""
    resident: int
    """How many of them it holds; the rest is read over the bus."""

    @property
    def fixed_bytes(self) -> int:
        """All but the experts."""
        weights = self.dense_bytes + self.draft_bytes
        return weights + self.kv_bytes + self.state_bytes + self.buffer_bytes + self.reserve_bytes

    @property
    def free_bytes(self) -> int:
        """What is left, beside the reserve; negative when the card is too small."""
        return self.vram_bytes - self.fixed_bytes - self.resident * self.expert_bytes

    @property
    def fits(self) -> bool:
        """Whether the fixed costs fit."""
        return self.fixed_bytes <= self.vram_bytes

    def rows(self) -> tuple[tuple[str, int], ...]:
        """The table of `strata setup --explain`: what for, and bytes."""
        share = self.resident / self.experts if self.experts else 1.0
        return (
            ("dense weights", self.dense_bytes),
            (
                f"experts, {self.resident} of {self.experts} ({share:.0%})",
                self.resident * self.expert_bytes,
            ),
            ("keys and values", self.kv_bytes),
            ("slots' recurrent state", self.state_bytes),
            ("draft layer", self.draft_bytes),
            ("buffers of a prompt chunk", self.buffer_bytes),
            ("reserve", self.reserve_bytes),
            ("free", self.free_bytes),
            ("card", self.vram_bytes),
        )


def plan_cards(
    info: ModelInfo,
    cards: Sequence[tuple[str, int]],
    first_layers: Sequence[int],
    *,
    kv: str,
    slots: int,
    max_context: int,
    kv_resident: int | None = None,
    prefill: int = PREFILL_TOKENS,
    reserve_bytes: int = RESERVE_BYTES,
) -> tuple[CardPlan, ...]:
    """A plan for each card (name, bytes) in the order of the layers.

    `first_layers` are the first layers of the later cards. Head and draft layer lie on the last
    card. Keys, values and state are shared out by the number of layers, since attention layers come
    at regular distances.
    """
    bounds = (0, *first_layers, info.layers)
    cells = min(max_context, kv_resident or max_context)
    expert = info.expert_bytes // info.expert_pairs if info.expert_pairs else 0
    plans = []
    for index, (name, vram) in enumerate(cards):
        first, end = bounds[index], bounds[index + 1]
        last = index == len(cards) - 1
        share = (end - first) / info.layers
        head = int(info.dense_bytes * HEAD_SHARE)
        dense = int((info.dense_bytes - head) * share) + (head if last else 0)
        plan = CardPlan(
            name=name,
            vram_bytes=vram,
            layers=(first, end),
            dense_bytes=dense,
            kv_bytes=int(slots * cells * token_bytes(info, kv) * share),
            state_bytes=int(slots * info.state_bytes * share),
            draft_bytes=info.draft_bytes if last else 0,
            buffer_bytes=PREFILL_BUFFER_BYTES * prefill // PREFILL_TOKENS,
            reserve_bytes=reserve_bytes,
            expert_bytes=expert,
            experts=info.expert_pairs * (end - first) // info.layers,
            resident=0,
        )
        room = max(0, plan.free_bytes) // expert if expert else plan.experts
        plans.append(replace(plan, resident=min(plan.experts, room)))
    return tuple(plans)
