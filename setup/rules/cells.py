"""Bytes of one cell: the keys and values of one token in one attention layer."""

from __future__ import annotations

from typing import Final

from engine.memory import vector_bytes

HEADS: Final = 2
HEAD_NUMBERS: Final = 256
"""Key/value heads of a layer and numbers of each, alike in both families of models."""
CELL_NUMBERS: Final = 2 * HEADS * HEAD_NUMBERS
"""Of keys and values together."""


def cell_bytes(kv: str) -> int:
    """Bytes of one cell in the format `kv`. `ConfigError` names the formats there are."""
    return HEADS * (vector_bytes(HEAD_NUMBERS, kv) + vector_bytes(HEAD_NUMBERS, kv, value=True))
