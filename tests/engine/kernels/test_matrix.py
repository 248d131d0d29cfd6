"""Packing for a device: lossless for every type, stacks by their addresses, scaled stacks."""

import numpy as np
import pytest
import torch

from engine.gguf.dequantize import dequantize
from engine.gguf.integer_form import INTEGER_TYPES
from engine.gguf.types import quant_type
from engine.kernels.form import CODES, FLOAT_TILE, FloatForm
from engine.kernels.linear import linear, product
from engine.kernels.matrix import matrix
from engine.reference import linear as reference
from engine.reference.matrix import Matrix
from tests.engine.kernels.packing import activations, random_pair, tame_pair
from tests.engine.reference.checks import same_bits
from tests.engine.reference.packing import random_raw


def test_every_integer_type_has_a_layout() -> None:
    assert set(CODES) == INTEGER_TYPES - {"NVFP4"}


# Bytes of 16 outputs x 256 inputs: codes, low bits, multipliers, scales, and of minima.
# Q4_0: 2048 + 8 scales of 2 bytes x 16 = 2304. IQ3_S: 2048 + 128 + one word x 16 = 2240.
# Q5_K: 2048 + 512 + 128 + 64 + 128 + 64 = 2944. Q6_K: 2048 + 1024 + 256 + 64 = 3392.
# Q2_0: 1024 + 4 scales x 2 x 16 = 1152. Q8_0: 4096 + 256 = 4352. MXFP4: 2048 + 8 x 4 x 16 = 2560.
# BF16: 8192 + 2 scales x 4 x 16 (room for those of a segment) = 8320.
@pytest.mark.parametrize(
    ("type_name", "size"),
    [
        ("Q4_0", 2304),
        ("IQ3_S", 2240),
        ("Q5_K", 2944),
        ("Q6_K", 3392),
        ("Q2_0", 1152),
        ("Q8_0", 4352),
        ("MXFP4", 2560),
        ("BF16", 8320),
        ("F32", 8320),
    ],
)
def test_bytes_of_a_tile(type_name: str, size: int) -> None:
    _, packed = random_pair(type_name, (17,), 256)
    assert 4 * packed.form.tile_words(packed.quads) == size
    assert packed.record.shape == (1, 2 * size)


@pytest.mark.parametrize("type_name", ["F32", "F16", "BF16"])
def test_floats_stay_as_stored(type_name: str) -> None:
    raw = random_raw(type_name, (6,), 70)
    _, packed = random_pair(type_name, (6,), 70)
    assert packed.form == FloatForm(groups=3, unrolled=3, tile=FLOAT_TILE)
    assert packed.record.element_size() == quant_type(type_name).block_bytes
    values = packed.record[0].transpose(1, 2).reshape(8, 96).float()
    assert same_bits(values[:6, :70], dequantize(raw, quant_type(type_name)))
    assert not values[6:].any()
    assert not values[:, 70:].any()


def _one(stack: Matrix, expert: int) -> Matrix:
    """One matrix of a stack of the reference."""
    arrays = (getattr(stack, name)[expert : expert + 1] for name in Matrix._fields[2:])
    return Matrix(stack.rows, stack.columns, *arrays)


@pytest.mark.parametrize("type_name", ["Q5_1", "Q2_0", "F16"])
def test_a_stack_is_read_by_addresses(type_name: str) -> None:
    """Pairs of a row and a matrix, in any order, some more than once."""
    wanted, stack = random_pair(type_name, (3, 5), 64)
    x = activations(2, 64)
    chosen = torch.tensor([2, 0, 1, 2], dtype=torch.int32)
    got = product(x, stack, chosen, 2)
    for pair, expert in enumerate(chosen.tolist()):
        row = x[pair // 2 : pair // 2 + 1]
        assert same_bits(got[pair], reference.linear(row, _one(wanted, expert))[0])


@pytest.mark.parametrize("type_name", ["Q8_0", "Q4_0", "F32"])
def test_factors_of_a_stack(type_name: str) -> None:
    """Factors that no fp16 holds."""
    wanted, packed = tame_pair(type_name, (2, 5), 64)
    factors = np.array([0.3, -1.7], np.float32)
    x = activations(2, 64)
    got = product(x, packed.scaled(factors), torch.tensor([0, 1], dtype=torch.int32), 1)
    for expert in range(2):
        one = _one(wanted.scaled(factors), expert)
        assert same_bits(got[expert], reference.linear(x[expert : expert + 1], one)[0])


@pytest.mark.parametrize("type_name", ["Q5_K", "Q5_1", "MXFP4", "Q2_0"])
def test_a_factor_for_all(type_name: str) -> None:
    """Types with minima, with scales of more than one group and with float32 scales."""
    wanted, packed = random_pair(type_name, (5,), 256)
    factor = np.array([0.7], np.float32)
    x = activations(1, 256)
    with np.errstate(all="ignore"):
        assert same_bits(
            linear(x, packed.scaled(factor)), reference.linear(x, wanted.scaled(factor))
        )


@pytest.mark.parametrize("type_name", ["Q5_K", "BF16", "IQ4_NL"])
def test_parts_of_stacks_and_of_matrices(type_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed at once, two matrices at a time, and 16 outputs of one at a time."""
    raw = random_raw(type_name, (3, 37), 256)
    kind = quant_type(type_name)
    records = []
    for elements in (1 << 25, 2 * 37 * 256, 20 * 256):
        monkeypatch.setattr("engine.kernels.matrix._CHUNK_ELEMENTS", elements)
        records.append(matrix(raw, kind, 256, float_activations=False, device="cpu").record)
    assert all(same_bits(other.float(), records[0].float()) for other in records[1:])
