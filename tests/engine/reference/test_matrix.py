"""Packing of matrices: stacks, scales of a stack, padding."""

import numpy as np
import pytest
import torch

from engine.reference.linear import linear, product
from engine.reference.matrix import TILE
from tests.engine.reference.checks import same_bits
from tests.engine.reference.packing import packed, random_raw

KINDS = ["Q4_K", "Q4_0", "Q6_K", "Q2_0", "IQ1_M", "MXFP4", "NVFP4", "BF16"]


@pytest.mark.parametrize("type_name", KINDS)
def test_a_stack_holds_its_matrices(type_name: str) -> None:
    raw = random_raw(type_name, (3, 33), 256)
    x = np.random.default_rng(1).standard_normal((2, 256), np.float32)
    stack = packed(raw, type_name, 256)
    assert (stack.rows, stack.columns) == (33, 256)
    for expert in range(3):
        out = np.full((2, 33), np.nan, np.float32)
        product(x, stack, expert, out)
        alone = linear(torch.from_numpy(x), packed(raw[expert], type_name, 256))
        assert same_bits(out, alone)


@pytest.mark.parametrize("type_name", KINDS)
def test_factors_of_a_stack(type_name: str) -> None:
    """Powers of two, so that the factor's place in the order does not show."""
    raw = random_raw(type_name, (3, 5), 256)
    x = np.random.default_rng(2).standard_normal((1, 256), np.float32) * np.float32(1e-3)
    plain = packed(raw, type_name, 256)
    factors = np.array([0.5, 1, 0.25], np.float32)
    for given in (factors, np.float32(0.5).reshape(1)):
        scaled = plain.scaled(given)
        for expert in range(3):
            out, wanted = np.empty((2, 1, 5), np.float32)
            product(x, scaled, expert, out)
            product(x, plain, expert, wanted)
            np.testing.assert_allclose(
                out, wanted * given[expert % len(given)], rtol=1e-6, atol=1e-37
            )


def test_outputs_that_fill_no_tile_are_padded_with_zeros() -> None:
    whole = packed(random_raw("Q4_0", (TILE + 1,), 64), "Q4_0", 64)
    assert whole.codes.shape == (1, 2, 2, 32, TILE)
    assert not whole.codes[0, 1, ..., 1:].any()
    assert not whole.scale[0, 1, :, 1:].any()
