"""The widths of the published models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from engine.models.config import Architecture

STREAMS = 4
"""Residual streams of hyper-connections."""
CONV_KERNEL = 4
# Primes from 20,000,000 on, one for each of 16 heads.
_PRIMES = tuple(
    20_000_000 + over
    for over in (3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The widths of a model. `interval`: one layer in so many attends. `drafts`: draft layers."""

    architecture: Architecture
    layers: int
    experts: int
    used: int
    width: int
    heads: int
    value_heads: int
    expert_width: int
    drafts: int
    interval: int = 4
    key_heads: int = 16
    kv_heads: int = 2
    head_length: int = 256
    delta_length: int = 128
    index_heads: int = 4
    low_rank: int = 320
    vocabulary: int = 248_320
    train_context: int = 262_144
    eos: int = 248_044
    primes: tuple[int, ...] = _PRIMES

    @property
    def flash(self) -> bool:
        """True for the family with hyper-connections and n-grams."""
        return self.architecture == "qwen4exp"

    @property
    def inner(self) -> int:
        """Values of all heads of the recurrence."""
        return self.value_heads * self.delta_length

    @property
    def channels(self) -> int:
        """Width of the convolution: queries, keys, values."""
        return 2 * self.key_heads * self.delta_length + self.inner

    @property
    def wide(self) -> int:
        """All residual streams."""
        return STREAMS * self.width

    @property
    def table_rows(self) -> int:
        """Rows of the n-gram table: the heads' rows, padded to a multiple of 128."""
        return -(-sum(self.primes) // 128) * 128


FLASH_NEXT = Geometry(
    architecture="qwen4exp",
    layers=48,
    experts=512,
    used=10,
    width=2560,
    heads=24,
    value_heads=48,
    expert_width=640,
    drafts=0,
)
QWEN36 = Geometry(
    architecture="qwen35moe",
    layers=40,
    experts=256,
    used=8,
    width=2048,
    heads=16,
    value_heads=32,
    expert_width=512,
    drafts=1,
)
GEOMETRIES: Mapping[str, Geometry] = MappingProxyType(
    {geometry.architecture: geometry for geometry in (FLASH_NEXT, QWEN36)}
)
