"""The size of a cell is one fact: the rules' table and the engine's own sums agree."""

from __future__ import annotations

import pytest

from engine.errors import ConfigError
from engine.memory import vector_bytes
from setup.rules.cells import CELL_BYTES, cell_bytes


@pytest.mark.parametrize(
    ("kv", "size"),
    [
        ("int8", 1056),  # 2 heads * (256 + 4 * 2) * (key and value) = 4 * 264
        ("q4_0", 576),  # 4 vectors * 256 / 32 blocks * 18 bytes
        ("k8v4", 816),  # 2 * 264 + 2 * 144
        ("fp16", 2048),  # 4 vectors * 256 * 2 bytes
        ("f32", 4096),  # 4 vectors * 256 * 4 bytes
    ],
)
def test_a_cell(kv: str, size: int) -> None:
    assert cell_bytes(kv) == size


def test_every_format_is_tested() -> None:
    assert set(CELL_BYTES) == {"int8", "q4_0", "k8v4", "fp16", "f32"}


@pytest.mark.parametrize("kv", list(CELL_BYTES))
def test_the_engine_stores_a_cell_in_as_many_bytes(kv: str) -> None:
    # Both families: 2 key/value heads of 256 numbers.
    assert 2 * (vector_bytes(256, kv) + vector_bytes(256, kv, True)) == cell_bytes(kv)


@pytest.mark.parametrize("kv", ["", "INT8", "int4", "auto"])
def test_unknown_formats_are_named_with_the_known_ones(kv: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cell_bytes(kv)
    assert repr(kv) in caught.value.message
    assert "int8, q4_0, k8v4, fp16, f32" in caught.value.message
