"""The training scripts' rounding: the bytes say what training saw."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.gguf.dequantize import dequantize
from engine.gguf.types import quant_type
from scripts.train.formats import quantised, types
from scripts.train.geometry import tiny_qwen35moe
from scripts.train.parameters import initial
from scripts.train.quantise import BLOCK, packed, rounded, straight_through
from scripts.train.train import rounded_weights

NAMES = sorted(BLOCK)


def matrix(seed: int, scale: float) -> Tensor:
    """Rows of quite different sizes, one of them zero."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(6, 256, generator=generator) * torch.rand(6, 1, generator=generator) * scale
    rows[2] = 0
    return rows


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1 << 30), scale=st.sampled_from([1e-3, 0.05, 1.0, 40.0]))
def test_bytes_read_back_as_rounded(name: str, seed: int, scale: float) -> None:
    x = matrix(seed, scale)
    raw = packed(x, name)
    assert np.array_equal(dequantize(raw, quant_type(name)), rounded(x, name).numpy())
    if name != "Q2_0":  # unknown to the gguf package
        oracle = gguf.dequantize(raw, gguf.GGMLQuantizationType[name])
        assert np.array_equal(oracle.reshape(x.shape), rounded(x, name).numpy())


@pytest.mark.parametrize("name", NAMES)
def test_rounding_is_no_worse_than_its_step(name: str) -> None:
    x = matrix(3, 1.0)
    bits = {"Q8_0": 8, "Q5_0": 5, "Q5_1": 5, "Q4_0": 4, "Q4_1": 4, "Q2_0": 2}[name]
    blocks = x.unflatten(-1, (-1, BLOCK[name]))
    error = (rounded(x, name) - x).unflatten(-1, (-1, BLOCK[name])).square().mean(-1).sqrt()
    assert (error <= 2 * blocks.abs().amax(-1) / 2 ** (bits - 1) + 1e-6).all()


def test_two_bit_codes_use_either_sign_of_the_scale() -> None:
    block = torch.tensor([2.0, 1.0, 0.0, -1.0]).repeat(16).unsqueeze(0)
    assert torch.equal(rounded(block, "Q2_0"), block)
    assert torch.equal(rounded(-block, "Q2_0"), -block)


def test_gradient_passes_straight_through() -> None:
    x = matrix(5, 1.0).requires_grad_()
    (straight_through(x, "Q4_0") * 3).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full_like(x, 3))


def test_rounding_all_weights_at_once_equals_one_by_one() -> None:
    geometry = tiny_qwen35moe(256)
    weights = initial(geometry, 2)
    assert set(types(weights, geometry).values()) == set(BLOCK) | {"F32"}
    one_by_one = quantised(weights, geometry)
    for name, value in rounded_weights(weights, geometry).items():
        assert torch.equal(value, one_by_one[name]), name
