"""Dequantisation against the `gguf` package, bit for bit, and Q2_0 against blocks by hand."""

from __future__ import annotations

import struct

import gguf
import gguf.quants
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import UnsupportedModelError
from engine.gguf.dequantize import dequantize
from engine.gguf.types import QUANT_TYPES, quant_type
from tests.engine.gguf.blocks import random_blocks

KNOWN = sorted(k.name for k in QUANT_TYPES.values() if k.block_elements > 1 and k.name != "Q2_0")
FLOATS = ("F32", "F16", "BF16")


def bits(values: np.ndarray) -> np.ndarray:
    assert values.dtype == np.float32
    return values.view(np.uint32)


def test_the_table_of_types_is_that_of_the_package() -> None:
    sizes = {kind.value: size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    names = {kind.value: kind.name for kind in gguf.GGMLQuantizationType}
    for number, kind in QUANT_TYPES.items():
        if kind.name == "Q2_0":
            assert (number, kind.block_elements, kind.block_bytes) == (42, 64, 18)
            continue
        assert names[number] == kind.name
        assert sizes[number] == (kind.block_elements, kind.block_bytes)


@pytest.mark.parametrize("name", KNOWN)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 5), blocks=st.integers(1, 9))
def test_bits_are_those_of_the_package(name: str, seed: int, rows: int, blocks: int) -> None:
    kind = quant_type(name)
    raw = random_blocks(kind, (2, rows), blocks, np.random.default_rng(seed))
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    ours = dequantize(raw, kind)
    assert ours.shape == (2, rows, blocks * kind.block_elements)
    assert np.array_equal(bits(ours), bits(expected))


@pytest.mark.parametrize("name", KNOWN)
def test_bits_hold_beyond_one_chunk(name: str) -> None:
    kind = quant_type(name)
    raw = random_blocks(kind, (300,), 2048 // kind.block_elements, np.random.default_rng(3))
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    assert np.array_equal(bits(dequantize(raw, kind)), bits(expected))


@pytest.mark.parametrize("name", FLOATS)
def test_floats_widen_exactly(name: str) -> None:
    kind = quant_type(name)
    raw = np.random.default_rng(4).integers(0, 256, (3, 40 * kind.block_bytes), np.uint8)
    ours = dequantize(raw, kind)
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    same = bits(ours) == bits(np.asarray(expected, np.float32))
    assert (same | np.isnan(ours)).all()
    assert not np.shares_memory(ours, raw)


def test_q2_0_blocks_by_hand() -> None:
    """Byte 0b11100100 holds the codes 0, 1, 2, 3 in element order: -d, 0, d, 2d."""
    first = struct.pack("<e", 0.5) + bytes([0b11100100] * 16)
    second = struct.pack("<e", -3.0) + bytes([0b00011011, 0b11111111, 0, 0b01010101] * 4)
    raw = np.frombuffer(first + second, np.uint8).reshape(1, 36)
    weights = dequantize(raw, quant_type("Q2_0"))
    assert weights.shape == (1, 128)
    assert weights[0, :64].tolist() == [-0.5, 0.0, 0.5, 1.0] * 16
    quarter = [-6.0, -3.0, 0.0, 3.0] + [-6.0] * 4 + [3.0] * 4 + [0.0] * 4
    assert weights[0, 64:].tolist() == quarter * 4


def test_q2_0_of_several_rows() -> None:
    raw = random_blocks(quant_type("Q2_0"), (5, 3), 4, np.random.default_rng(5))
    weights = dequantize(raw, quant_type("Q2_0"))
    for row in np.ndindex(5, 3):
        for block in range(4):
            stored = bytes(raw[row])[18 * block : 18 * block + 18]
            (d,) = struct.unpack("<e", stored[:2])
            for element in range(64):
                code = stored[2 + element // 4] >> 2 * (element % 4) & 3
                assert weights[(*row, 64 * block + element)] == np.float32(d * (code - 1))


@pytest.mark.parametrize("name", ["I8", "I16", "I32", "I64", "F64"])
def test_integers_are_no_weights(name: str) -> None:
    with pytest.raises(UnsupportedModelError, match=name) as error:
        dequantize(np.zeros((2, 64), np.uint8), quant_type(name))
    assert error.value.hint
