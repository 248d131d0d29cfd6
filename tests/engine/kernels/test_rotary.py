"""Rotation and normed heads against the reference, bit for bit."""

import pytest
import torch

from engine.kernels.rotary import normed_heads, rotary_table
from engine.reference import rotary as reference
from tests.engine.reference.checks import Outputs, assert_rows_independent, same_bits


def test_table() -> None:
    assert same_bits(rotary_table(50, 8, 1e4, device="cpu"), reference.rotary_table(50, 8, 1e4))


# Part of a head, all of it, a head that is no power of two, none of it.
@pytest.mark.parametrize(("width", "rotary"), [(32, 8), (64, 64), (100, 20), (32, 0)])
def test_same_bits(width: int, rotary: int) -> None:
    """The heads of a wider row, as queries beside their gates."""
    random = torch.Generator().manual_seed(width)
    paired = torch.randn(3, 2, 2, width, generator=random)
    weight, table = torch.linspace(0.5, 1.5, width), rotary_table(50, rotary, 1e4, device="cpu")
    positions = torch.tensor([0, 49, 7], dtype=torch.int32)
    heads = paired[:, :, 0]
    wanted = reference.normed_heads(heads.numpy(), weight, 1e-6, positions, table)
    assert same_bits(normed_heads(heads, weight, 1e-6, positions, table), wanted)


def test_rows_are_independent() -> None:
    x, weight = torch.randn(5, 2, 32), torch.linspace(0.5, 1.5, 32)
    table, positions = rotary_table(50, 8, 1e4, device="cpu"), torch.arange(20, 25).int()

    def on_rows(first: int, last: int) -> Outputs:
        return (normed_heads(x[first:last], weight, 1e-6, positions[first:last], table),)

    assert_rows_independent(on_rows, 5)
