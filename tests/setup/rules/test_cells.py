"""The size of a cell, by the engine's own sums, is what the rules' sources say."""

from __future__ import annotations

import pytest

from engine.config import NAMED_KV_FORMATS
from engine.errors import ConfigError
from setup.rules.cells import cell_bytes


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


def test_every_format_has_a_size() -> None:
    assert all(cell_bytes(kv) > 0 for kv in NAMED_KV_FORMATS)


@pytest.mark.parametrize("kv", ["", "INT8", "int4", "auto"])
def test_unknown_formats_are_named_with_the_known_ones(kv: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cell_bytes(kv)
    assert repr(kv) in caught.value.message
    assert "int8, fp16, f32, k8v4, q4_0" in caught.value.message
