"""How many bytes a configuration takes. Setup and the engine share these sums."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import KvFormat
from engine.model_info import ModelInfo

GIB = 1 << 30

# Interpreter, torch, compiled loops and the rows of one window.
WORK_BYTES = 1 * GIB

_SCALE_VALUES = 64
"""Values that share one fp16 scale in the int8 format of keys and values."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of one engine. `available_bytes` is what the machine can give it."""

    weight_bytes: int
    cache_bytes_per_slot: int
    state_bytes_per_slot: int
    checkpoint_bytes_per_slot: int
    slots: int
    work_bytes: int
    available_bytes: int

    @property
    def slot_bytes(self) -> int:
        """What one more slot costs."""
        return (
            self.cache_bytes_per_slot + self.state_bytes_per_slot + self.checkpoint_bytes_per_slot
        )

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.weight_bytes + self.work_bytes + self.slots * self.slot_bytes

    @property
    def fits(self) -> bool:
        """True when the machine can give that much."""
        return self.total_bytes <= self.available_bytes

    def rows(self) -> tuple[tuple[str, int], ...]:
        """The table that `strata run` prints: what for, and bytes."""
        return (
            ("weights", self.weight_bytes),
            (f"keys and values, {self.slots} slots", self.slots * self.cache_bytes_per_slot),
            (f"recurrent state, {self.slots} slots", self.slots * self.state_bytes_per_slot),
            (f"checkpoints, {self.slots} slots", self.slots * self.checkpoint_bytes_per_slot),
            ("working memory", self.work_bytes),
            ("total", self.total_bytes),
            ("available", self.available_bytes),
        )


def token_bytes(info: ModelInfo, kv: KvFormat) -> int:
    """Bytes that one token of a conversation takes in the caches of all attention layers."""
    return sum(_stored(count, kv) for count in info.key_values) + info.index_bytes_per_token


def _stored(count: int, kv: KvFormat) -> int:
    match kv:
        case "f32":
            return 4 * count
        case "fp16":
            return 2 * count
        case "int8":
            return count + 2 * -(-count // _SCALE_VALUES)


def plan_memory(
    info: ModelInfo,
    *,
    kv: KvFormat,
    slots: int,
    max_context: int,
    prompt_cache: int,
    available_bytes: int,
) -> MemoryPlan:
    """The bytes of an engine with these settings. Checkpoints are counted as if all were taken."""
    return MemoryPlan(
        weight_bytes=info.weight_bytes,
        cache_bytes_per_slot=max_context * token_bytes(info, kv),
        state_bytes_per_slot=info.state_bytes,
        checkpoint_bytes_per_slot=prompt_cache * info.state_bytes,
        slots=slots,
        work_bytes=WORK_BYTES,
        available_bytes=available_bytes,
    )
