"""How many bytes a configuration takes on a card, and beside it in the machine's memory."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import TablePlace
from engine.memory import GIB, MIB, CardShare, MemoryPlan, token_bytes
from engine.model_info import ModelInfo
from engine.scheduler import MOST_BESIDE

CONTEXT_BYTES = 640 * MIB
"""What the driver takes for a process: its context, and the compiled kernels."""
RESERVE_MIB = 700
"""Left to the driver, the screen and other programs unless something else is asked."""
HOST_WORK_BYTES = 3 * GIB
"""Interpreter, torch with CUDA, and pinned buffers."""
STAGING_EXPERTS = 128
"""Experts outside the card that a window can hold at once; more come one after another."""
SPARE_SLOTS = 1
"""A slot that no conversation has: graphs run their kernels there for the first time."""

UNPLANNED = 20
"""A part of the card that checkpoints leave alone: sums are estimates."""
_ROW_BYTES = 800_000
"""Buffers of one row of a prompt window, for widths and experts of Qwen3.8-Flash-Next."""
_DRAFT_ROW_BYTES = 1_540_000
"""What is kept until the commit of a row of a window that has drafts, too."""
GRAPH_ROWS = 64
"""Rows of a graph that may choose tokens: all graphs share their logits, and eager windows have
others."""
PROMPT_GRAPH_ROWS = 256
"""Rows of the longest graph, where all experts are on the card: graphs share their buffers."""


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
    draft_rows: int = 0,
) -> MemoryPlan:
    """Fixed costs first, then the n-gram table where it fits beside all experts, then experts, and
    where all of them are there, checkpoints. What does not fit lies in the machine's memory.
    """
    weights = info.on_card
    fixed = weights.dense_bytes + weights.embedding_bytes
    fixed += weights.draft_bytes if spec > 1 else 0
    fixed += weights.head_bytes * draft_rows // info.vocab_size
    state = info.state_bytes + spec * info.row_state_bytes
    cache = max_context * token_bytes(info, kv)
    beside = min(prefill, MOST_BESIDE) * (_ROW_BYTES + (_DRAFT_ROW_BYTES if spec > 1 else 0))
    work = CONTEXT_BYTES + max(prefill * _ROW_BYTES, beside) + 4 * info.vocab_size * 2 * GRAPH_ROWS
    taken = fixed + work + (slots + SPARE_SLOTS) * (cache + state)
    place = room.table_place or _table_place(info, room, room.limit_bytes - taken)
    on_card = weights.table_bytes if place == "vram" else 0
    graphs = min(prefill, PROMPT_GRAPH_ROWS) * (_ROW_BYTES + _DRAFT_ROW_BYTES)
    resident = _resident(info, room, room.limit_bytes - taken - on_card, graphs)
    missing = resident < _each_layer(info)
    work += _staging_bytes(info) if missing else graphs
    checkpoints = prompt_cache * info.state_bytes
    near = 0
    if not missing:
        left = room.limit_bytes - taken - graphs - on_card - _expert_bytes(info, resident)
        left -= room.limit_bytes // UNPLANNED
        near = max(0, min(slots * prompt_cache, left // max(1, info.state_bytes)))
    host = HOST_WORK_BYTES + slots * checkpoints - near * info.state_bytes
    host += weights.expert_bytes - _expert_bytes(info, resident)
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
            resident_experts=resident,
            layer_experts=_each_layer(info),
            expert_bytes=_expert_bytes(info, resident),
            all_expert_bytes=weights.expert_bytes,
            least_expert_bytes=_least_bytes(info, room, staged=missing),
            table_bytes=on_card,
            all_table_bytes=weights.table_bytes,
            spare_slots=SPARE_SLOTS,
            checkpoints=near,
            checkpoint_bytes=near * info.state_bytes,
            host_bytes=host,
            host_available_bytes=room.host_bytes,
        ),
    )


def _table_place(info: ModelInfo, room: CardRoom, left: int) -> TablePlace:
    """In the card's memory where all experts fit there, too, or as many as were asked for."""
    wanted = info.on_card.expert_bytes
    if room.expert_cache_bytes is not None:
        wanted = min(wanted, room.expert_cache_bytes)
    return "vram" if wanted + info.on_card.table_bytes <= left else "ram"


def _resident(info: ModelInfo, room: CardRoom, left: int, graphs: int) -> int:
    """Experts of each layer on the card: as many as there is room for, as asked at the most. All of
    them need room for prompts' `graphs`, too."""
    count, whole = _each_layer(info), info.on_card.expert_bytes
    asked = whole if room.expert_cache_bytes is None else room.expert_cache_bytes
    if not room.keeps_experts or whole <= min(asked, left - graphs):
        return count
    most = min(asked, left - _staging_bytes(info)) * count // whole
    return max(0, min(most, count - 1))


def _expert_bytes(info: ModelInfo, resident: int) -> int:
    """Bytes of so many experts of each layer; a layer without one keeps the room for one."""
    count = _each_layer(info)
    return info.on_card.expert_bytes * max(1, resident) // count if count else 0


def _least_bytes(info: ModelInfo, room: CardRoom, *, staged: bool) -> int:
    """What experts take when as many as possible lie elsewhere; `staged`: staging is counted."""
    if not room.keeps_experts:
        return info.on_card.expert_bytes
    least = _expert_bytes(info, 0) + (0 if staged else _staging_bytes(info))
    return min(info.on_card.expert_bytes, least)


def _staging_bytes(info: ModelInfo) -> int:
    """Where experts lie that come for a window."""
    return STAGING_EXPERTS * info.on_card.expert_bytes // max(1, info.expert_pairs)


def _each_layer(info: ModelInfo) -> int:
    return info.expert_pairs // info.layers
