"""Rotation and normed heads against the reference, bit for bit."""

import pytest
import torch
import triton
import triton.language as tl

from engine.kernels.dots import lanes_at
from engine.kernels.rotary import head_constants, normed, rotary_table
from engine.reference import rotary as reference
from tests.engine.reference.checks import Outputs, assert_rows_independent, same_bits


@triton.jit
def normed_heads_kernel(
    X, WEIGHT, TABLE, POSITIONS, OUT, eps, row_stride, head_stride, heads, K: tl.constexpr,
    HALF: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """Grid (heads / M, rows)."""
    row = tl.program_id(1)
    head = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    constants = head_constants(WEIGHT, TABLE, tl.load(POSITIONS + row), K, HALF, M)
    at = X + row * row_stride + head * head_stride
    x = normed(lanes_at(at, head < heads, K, M), at, constants, eps, K, HALF, M, False)
    for step in tl.static_range((K + 31) // 32):
        value = step * 32 + tl.arange(0, 32)[None, :]
        out = OUT + (row * heads + head) * K + value
        tl.store(out, x[step], mask=(head < heads) & (value < K))


def normed_heads(
    x: torch.Tensor, weight: torch.Tensor, positions: torch.Tensor, table: torch.Tensor
) -> torch.Tensor:
    rows, heads, width = x.shape
    out = torch.empty(x.shape)
    normed_heads_kernel[(-(-heads // 4), rows)](
        x, weight, table, positions, out, 1e-6, x.stride(0), x.stride(1), heads, K=width,
        HALF=table.shape[2], M=4,
    )  # fmt: skip
    return out


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
    assert same_bits(normed_heads(heads, weight, positions, table), wanted)


def test_rows_are_independent() -> None:
    x, weight = torch.randn(5, 2, 32), torch.linspace(0.5, 1.5, 32)
    table, positions = rotary_table(50, 8, 1e4, device="cpu"), torch.arange(20, 25).int()

    def on_rows(first: int, last: int) -> Outputs:
        return (normed_heads(x[first:last], weight, positions[first:last], table),)

    assert_rows_independent(on_rows, 5)
