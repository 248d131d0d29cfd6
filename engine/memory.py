"""How many bytes a configuration takes. Setup and the engine share these sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.config import NAMED_KV_FORMATS, Activations
from engine.errors import ConfigError
from engine.model_info import ModelInfo

GIB = 1 << 30
MIB = 1 << 20

# Interpreter, torch, compiled loops and the rows of one window.
WORK_BYTES = 1 * GIB

_SCALE_VALUES = 64
"""Numbers of a vector that share one fp16 scale in the int8 format of keys and values."""

_FOUR_BIT_VALUES, _FOUR_BIT_BYTES = 32, 18
"""Numbers that share one fp16 scale in 4 bits, and the bytes of both."""

_INT8_BYTES = 1 + 12 / 32
"""A weight's code, and its share of at most 12 bytes of scales for a group of 32."""


WEIGHTS_IN_MEMORY = (
    "the processor keeps each weight in memory as an 8-bit integer "
    f"with its scales ({_INT8_BYTES:.1f} bytes), however few bits it has in the file: all sizes of "
    "a model need the same memory"
)
"""Why a model needs more memory than its file has bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardShare:
    """Bytes of an engine on a card that an engine on the processor does not have."""

    name: str
    resident_experts: int
    """Routed experts of each layer in the card's memory, of `layer_experts`."""
    layer_experts: int
    expert_bytes: int
    """What they take, of `all_expert_bytes`."""
    all_expert_bytes: int
    least_expert_bytes: int
    """What must be there for experts, however little is left."""
    table_bytes: int
    """The n-gram table in the card's memory, of `all_table_bytes`: all of it or nothing."""
    all_table_bytes: int
    spare_slots: int
    checkpoints: int
    """As many as there is room for behind all else, `checkpoint_bytes` in all."""
    checkpoint_bytes: int
    host_bytes: int
    """What the engine takes of the machine's memory: experts, table and checkpoints."""
    host_available_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of one engine, on the processor or on a card.

    `available_bytes` is what the machine, or the card, can give it.
    """

    weight_bytes: int
    cache_bytes_per_slot: int
    state_bytes_per_slot: int
    checkpoint_bytes_per_slot: int
    slots: int
    work_bytes: int
    available_bytes: int
    card: CardShare | None = None
    """`None` on the processor."""
    parked_bytes: int = 0
    """Of the machine's memory, for conversations that lost their slot."""

    def with_parked(self, size_bytes: int) -> MemoryPlan:
        """The same with room for parked conversations."""
        card = self.card
        if card is not None:
            card = replace(card, host_bytes=card.host_bytes + size_bytes)
        return replace(self, parked_bytes=size_bytes, card=card)

    @property
    def host_left_bytes(self) -> int:
        """Of the machine's memory, what nothing here takes; at least 0."""
        if self.card is None:
            return max(0, self.available_bytes - self.total_bytes)
        return max(0, self.card.host_available_bytes - self.card.host_bytes)

    @property
    def slot_bytes(self) -> int:
        """What one more slot costs. A card leaves checkpoints to the machine's memory."""
        checkpoints = 0 if self.card else self.checkpoint_bytes_per_slot
        return self.cache_bytes_per_slot + self.state_bytes_per_slot + checkpoints

    @property
    def total_bytes(self) -> int:
        """All of it; on a card all that lies there."""
        return self._fixed_bytes + self.slots * self.slot_bytes

    @property
    def slots_that_fit(self) -> int:
        """As many slots of this kind as there is room for; at least 0."""
        left = self.available_bytes - self._fixed_bytes
        if self.card is None:
            return max(0, left // max(1, self.slot_bytes))
        left += self.card.expert_bytes - self.card.least_expert_bytes + self.card.checkpoint_bytes
        checkpoints = max(1, self.checkpoint_bytes_per_slot)
        beside = self.card.host_available_bytes - self.card.host_bytes
        by_host = self.slots + beside // checkpoints
        return max(0, min(left // max(1, self.slot_bytes), by_host))

    @property
    def fits(self) -> bool:
        """True when the machine, and the card, can give that much."""
        beside = self.card is None or self.card.host_bytes <= self.card.host_available_bytes
        return beside and self.total_bytes <= self.available_bytes

    @property
    def _fixed_bytes(self) -> int:
        """What does not depend on the number of slots."""
        fixed = self.weight_bytes + self.work_bytes
        if self.card is None:
            fixed += self.parked_bytes
        else:
            fixed += self.card.expert_bytes + self.card.table_bytes
            fixed += self.card.spare_slots * self.slot_bytes + self.card.checkpoint_bytes
        return fixed

    def rows(self) -> tuple[tuple[str, int], ...]:
        """The table that `strata run` prints: what for, and bytes."""
        return self._rows() if self.card is None else self._card_rows(self.card)

    def _card_rows(self, card: CardShare) -> tuple[tuple[str, int], ...]:
        slots = self.slots + card.spare_slots
        spare = f"{self.slots} slots and {card.spare_slots} to prepare"
        return (
            ("weights beside the experts", self.weight_bytes),
            (f"routed experts, {card.resident_experts} of {card.layer_experts}", card.expert_bytes),
            ("n-gram table", card.table_bytes),
            (f"keys and values, {spare}", slots * self.cache_bytes_per_slot),
            (f"recurrent state, {spare}", slots * self.state_bytes_per_slot),
            (f"{card.checkpoints} checkpoints", card.checkpoint_bytes),
            ("working memory", self.work_bytes),
            ("total", self.total_bytes),
            (f"available on {card.name}", self.available_bytes),
            ("in the machine's memory", card.host_bytes),
            *self._parked_row("of that, "),
            ("available there", card.host_available_bytes),
        )

    def _rows(self) -> tuple[tuple[str, int], ...]:
        return (
            ("weights", self.weight_bytes),
            (f"keys and values, {self.slots} slots", self.slots * self.cache_bytes_per_slot),
            (f"recurrent state, {self.slots} slots", self.slots * self.state_bytes_per_slot),
            (f"checkpoints, {self.slots} slots", self.slots * self.checkpoint_bytes_per_slot),
            *self._parked_row(""),
            ("working memory", self.work_bytes),
            ("total", self.total_bytes),
            ("available", self.available_bytes),
        )

    def _parked_row(self, opening: str) -> tuple[tuple[str, int], ...]:
        if not self.parked_bytes:
            return ()
        return ((f"{opening}parked conversations", self.parked_bytes),)


def weight_bytes(info: ModelInfo, activations: Activations) -> int:
    """Bytes of the weights in memory. The CPU keeps quantised ones as int8 with their scales."""
    if activations == "float":
        return 4 * (info.quantised_weights + info.float_weights)
    return int(info.quantised_weights * _INT8_BYTES) + 4 * info.float_weights


def token_bytes(info: ModelInfo, kv: str) -> int:
    """Bytes that one token of a conversation takes in the caches of all attention layers."""
    (key_length, keys), (value_length, values) = info.kv_vectors
    stored = keys * vector_bytes(key_length, kv) + values * vector_bytes(value_length, kv, True)
    return stored + info.index_bytes_per_token


def vector_bytes(length: int, kv: str, value: bool = False) -> int:
    """Bytes of one stored key (or value) vector of one head. `ConfigError` names the formats."""
    match kv:
        case "f32":
            return 4 * length
        case "fp16":
            return 2 * length
        case "q4_0":
            return _FOUR_BIT_BYTES * -(-length // _FOUR_BIT_VALUES)
        case "k8v4":
            return vector_bytes(length, "q4_0" if value else "int8")
        case "int8":
            return length + 2 * -(-length // _SCALE_VALUES)
    raise ConfigError(f"kv is {kv!r}, allowed is one of {', '.join(NAMED_KV_FORMATS)}")


def plan_memory(
    info: ModelInfo,
    *,
    kv: str,
    activations: Activations,
    slots: int,
    max_context: int,
    prompt_cache: int,
    available_bytes: int,
    draft_rows: int = 0,
) -> MemoryPlan:
    """The bytes of an engine with these settings. Checkpoints are counted as if all were taken."""
    return MemoryPlan(
        weight_bytes=weight_bytes(info, activations) + int(draft_rows * info.width * _INT8_BYTES),
        cache_bytes_per_slot=max_context * token_bytes(info, kv),
        state_bytes_per_slot=info.state_bytes,
        checkpoint_bytes_per_slot=prompt_cache * info.state_bytes,
        slots=slots,
        work_bytes=WORK_BYTES,
        available_bytes=available_bytes,
    )
