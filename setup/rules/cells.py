"""Bytes of one cell: the keys and values of one token in one attention layer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from engine.errors import ConfigError

# Both families have 2 key/value heads of 256 numbers: 2 * 2 * 256 = 1024 numbers a cell.
CELL_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "int8": 1056,  # 1024 codes, 16 scales of 2 bytes
        "q4_0": 576,  # 32 blocks of 18 bytes
        "k8v4": 816,  # keys as int8, values as q4_0: (1056 + 576) / 2
        "fp16": 2048,
        "f32": 4096,
    }
)


def cell_bytes(kv: str) -> int:
    """Bytes of one cell in the format `kv`. `ConfigError` names the formats there are."""
    if kv not in CELL_BYTES:
        raise ConfigError(f"kv is {kv!r}, allowed is one of {', '.join(CELL_BYTES)}")
    return CELL_BYTES[kv]
