"""How many bytes a configuration takes on a card, and beside it in the machine's memory."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import TablePlace
from engine.memory import GIB, CardShare, MemoryPlan, token_bytes
from engine.model_info import ModelInfo

MIB = 1 << 20
CONTEXT_BYTES = 640 * MIB
"""What the driver takes for a process: its context, and the compiled kernels."""
RESERVE_MIB = 700
"""Left to the driver, the screen and other programs unless something else is asked."""
HOST_WORK_BYTES = 3 * GIB
"""Interpreter, torch with CUDA, and pinned buffers."""
SPARE_SLOTS = 1
"""A slot that no conversation has: graphs run their kernels there for the first time."""

_ROW_BYTES = 1_600_000
"""Buffers of one row of a prompt window, for widths and experts of Qwen3.8-Flash-Next."""
_GRAPH_ROWS = 64
"""Windows up to so many rows are graphs, which share their buffers; each keeps its logits."""
_LEAST_EXPERT_BYTES = GIB
"""Staging and a few experts: the least with which experts outside the card are worth a try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRoom:
    """What a card and its machine can give, and what was said about its use.

    limit_bytes: of the card, everything counted. host_bytes: of the machine's memory.
    """

    name: str
    limit_bytes: int
    host_bytes: int
    keeps_experts: bool
    """Whether experts may lie in the machine's memory."""
    expert_cache_bytes: int | None = None
    table_place: TablePlace | None = None


def plan_on_card(
    info: ModelInfo,
    room: CardRoom,
    *,
    kv: str,
    slots: int,
    max_context: int,
    prompt_cache: int,
    prefill: int,
    spec: int,
) -> MemoryPlan:
    """Fixed costs first, then the n-gram table where it fits beside all experts, then experts.

    Checkpoints lie in the machine's memory.
    """
    weights = info.on_card
    fixed = weights.dense_bytes + weights.embedding_bytes
    fixed += weights.draft_bytes if spec > 1 else 0
    state = info.state_bytes + spec * info.row_state_bytes
    cache = max_context * token_bytes(info, kv)
    work = CONTEXT_BYTES + prefill * _ROW_BYTES + 4 * info.vocab_size * 2 * _GRAPH_ROWS
    left = room.limit_bytes - fixed - work - (slots + SPARE_SLOTS) * (cache + state)
    place = room.table_place or _table_place(info, room, left)
    on_card = weights.table_bytes if place == "vram" else 0
    experts = _resident(info, room, left - on_card)
    missing = experts < weights.expert_bytes
    checkpoints = prompt_cache * info.state_bytes
    host = HOST_WORK_BYTES + slots * checkpoints
    host += info.expert_bytes if missing else 0
    host += 0 if on_card else info.table_bytes
    return MemoryPlan(
        weight_bytes=fixed,
        cache_bytes_per_slot=cache,
        state_bytes_per_slot=state,
        checkpoint_bytes_per_slot=checkpoints,
        slots=slots,
        work_bytes=work,
        available_bytes=room.limit_bytes,
        card=CardShare(
            name=room.name,
            expert_bytes=experts,
            all_expert_bytes=weights.expert_bytes,
            least_expert_bytes=_least(info, room),
            table_bytes=on_card,
            all_table_bytes=weights.table_bytes,
            spare_slots=SPARE_SLOTS,
            host_bytes=host,
            host_available_bytes=room.host_bytes,
        ),
    )


def _table_place(info: ModelInfo, room: CardRoom, left: int) -> TablePlace:
    """In the card's memory where all experts fit there, too."""
    wanted = info.on_card.expert_bytes
    if room.expert_cache_bytes is not None:
        wanted = min(wanted, room.expert_cache_bytes)
    return "vram" if wanted + info.on_card.table_bytes <= left else "ram"


def _resident(info: ModelInfo, room: CardRoom, left: int) -> int:
    """Bytes of experts on the card: as many as there is room for, as asked at the most."""
    whole = info.on_card.expert_bytes
    if not room.keeps_experts:
        return whole
    asked = whole if room.expert_cache_bytes is None else room.expert_cache_bytes
    return max(min(whole, _least(info, room)), min(whole, asked, left))


def _least(info: ModelInfo, room: CardRoom) -> int:
    whole = info.on_card.expert_bytes
    return min(whole, _LEAST_EXPERT_BYTES) if room.keeps_experts else whole
