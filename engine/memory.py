"""How many bytes a configuration takes. Setup and the engine share these sums."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import NAMED_KV_FORMATS, Activations
from engine.errors import ConfigError
from engine.model_info import ModelInfo

GIB = 1 << 30

# Interpreter, torch, compiled loops and the rows of one window.
WORK_BYTES = 1 * GIB

_SCALE_VALUES = 64
"""Numbers of a vector that share one fp16 scale in the int8 format of keys and values."""

_FOUR_BIT_VALUES, _FOUR_BIT_BYTES = 32, 18
"""Numbers that share one fp16 scale in 4 bits, and the bytes of both."""

_INT8_BYTES = 1 + 12 / 32
"""A weight's code, and its share of at most 12 bytes of scales for a group of 32."""


WEIGHTS_IN_MEMORY = (
    "this version computes on the processor and keeps each weight in memory as an 8-bit integer "
    f"with its scales ({_INT8_BYTES:.1f} bytes), however few bits it has in the file: all sizes of "
    "a model need the same memory"
)
"""Why a model needs more memory than its file has bytes."""


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
    def slots_that_fit(self) -> int:
        """As many slots of this kind as the machine has room for; at least 0."""
        left = self.available_bytes - self.weight_bytes - self.work_bytes
        return max(0, left // max(1, self.slot_bytes))

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
) -> MemoryPlan:
    """The bytes of an engine with these settings. Checkpoints are counted as if all were taken."""
    return MemoryPlan(
        weight_bytes=weight_bytes(info, activations),
        cache_bytes_per_slot=max_context * token_bytes(info, kv),
        state_bytes_per_slot=info.state_bytes,
        checkpoint_bytes_per_slot=prompt_cache * info.state_bytes,
        slots=slots,
        work_bytes=WORK_BYTES,
        available_bytes=available_bytes,
    )
