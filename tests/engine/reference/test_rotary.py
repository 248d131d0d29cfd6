"""Rotary embedding: the table, the literal rotation, and transformers' own."""

import numpy as np
import pytest
import torch
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import apply_rotary_pos_emb

from engine.reference.rotary import normed_heads, rotary_table
from tests.engine.reference import literal, tolerances
from tests.engine.reference.checks import Outputs, assert_rows_independent, same_bits

POSITIONS = torch.tensor([0, 1, 7, 63, 64, 1000, 3, 3, 5, 900, 31, 2, 77, 11, 500, 12]).int()


def _heads(length: int) -> np.ndarray:
    return np.random.default_rng(length).standard_normal((16, 3, length), np.float32)


@pytest.mark.parametrize(("length", "rotary"), [(32, 32), (64, 16), (100, 6), (8, 0)])
def test_order(length: int, rotary: int) -> None:
    x, weight = _heads(length)[:3], torch.rand(length) + 0.5
    table = rotary_table(1024, rotary, 1e7)
    wanted = np.empty_like(x)
    for r in range(3):
        cos, sin = table[int(POSITIONS[r])].numpy()
        for h in range(3):
            normed = literal.rms_norm(x[r, h], weight.numpy(), 1e-6)
            wanted[r, h] = literal.rotate(normed, cos, sin)
    assert same_bits(normed_heads(x, weight, 1e-6, POSITIONS[:3], table), wanted)


@pytest.mark.parametrize(("length", "rotary", "base"), [(32, 32, 1e4), (64, 16, 1e7)])
def test_against_transformers(length: int, rotary: int, base: float) -> None:
    x = torch.from_numpy(_heads(length)).double()
    inverse = 1 / base ** (torch.arange(0, rotary, 2, dtype=torch.float64) / rotary)
    angles = (POSITIONS.double()[:, None] * inverse).repeat(1, 2)[None]
    heads_first = x.transpose(0, 1)[None]
    wanted, _ = apply_rotary_pos_emb(heads_first, heads_first, angles.cos(), angles.sin())
    factor = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    actual = normed_heads(
        x.float().numpy(), torch.ones(length), 1e-6, POSITIONS, rotary_table(1024, rotary, base)
    )
    # A norm scales all dims of a head alike, so it commutes with the rotation.
    error = (torch.from_numpy(actual).double() - wanted[0].transpose(0, 1) * factor).abs()
    assert error.max() <= 4 * tolerances.ROTARY


def test_the_table_is_rounded_once() -> None:
    table = rotary_table(5000, 64, 1e7)
    assert table.dtype == torch.float32
    assert table.shape == (5000, 2, 32)
    angle = 4999 / 1e7 ** (np.arange(32) / 32)
    np.testing.assert_array_equal(table[4999, 0], np.cos(angle).astype(np.float32))
    np.testing.assert_array_equal(table[4999, 1], np.sin(angle).astype(np.float32))
    np.testing.assert_array_equal(table[0, 0], 1)


def test_a_longer_table_begins_alike() -> None:
    assert same_bits(rotary_table(64, 32, 1e4), rotary_table(500, 32, 1e4)[:64])


def test_rows_are_independent() -> None:
    x, weight, table = _heads(64), torch.rand(64), rotary_table(1024, 16, 1e7)

    def on_rows(first: int, last: int) -> Outputs:
        out = normed_heads(x[first:last], weight, 1e-6, POSITIONS[first:last], table)
        return (torch.from_numpy(out),)

    assert_rows_independent(on_rows)
