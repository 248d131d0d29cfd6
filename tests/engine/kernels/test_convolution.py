"""The convolution against the reference, bit for bit: outputs and rings."""

import pytest
import torch

from engine.kernels.convolution import convolve_into
from engine.reference import convolution as reference
from engine.rows import Rows, rows_of
from tests.engine.reference.checks import (
    Outputs,
    assert_rows_independent,
    same_bits,
)
from tests.engine.reference.spans import chunks_of, one_slot

SHAPES = [(4, 1), (4, 3), (2, 1), (1, 1), (7, 3)]
"""Taps and dilation; the last reaches further back than a tile of 16 rows."""
CHANNELS = 37
DRAFTS = 3


def _input(rows: int, seed: int = 0, channels: int = CHANNELS) -> torch.Tensor:
    return torch.randn(rows, channels, generator=torch.Generator().manual_seed(seed))


def _weight(taps: int, channels: int = CHANNELS) -> torch.Tensor:
    return torch.randn(channels, taps, generator=torch.Generator().manual_seed(taps))


def _ring(taps: int, dilation: int, slots: int = 3, channels: int = CHANNELS) -> torch.Tensor:
    """Just the reach and the most draft rows, with garbage in it."""
    return torch.full((slots, (taps - 1) * dilation + DRAFTS, channels), torch.nan)


def _convolved(
    x: torch.Tensor, ring: torch.Tensor, weight: torch.Tensor, dilation: int, rows: Rows
) -> torch.Tensor:
    """What is added, since -0 changes nothing."""
    out = torch.full_like(x, -0.0)
    convolve_into(out, torch.full_like(x, -0.0), x, ring, weight, dilation, rows)
    return out


def _agree(
    x: torch.Tensor, ring: torch.Tensor, weight: torch.Tensor, dilation: int, rows: Rows
) -> None:
    """Both add to what they are given; the ring goes on with what the kernel wrote."""
    expected_ring, actual, value = ring.clone(), x.flip(1).clone(), x.flip(0) / 3
    wanted = actual.clone()
    reference.convolve_into(wanted, value, x, expected_ring, weight, dilation, rows)
    convolve_into(actual, value, x, ring, weight, dilation, rows)
    assert same_bits(actual, wanted)
    assert same_bits(ring, expected_ring)


# One row, less than the reach, a tile and more, many tiles.
@pytest.mark.parametrize("sizes", [(1,), (2, 5), (3, 1, 17, 40)])
@pytest.mark.parametrize(("taps", "dilation"), SHAPES)
def test_chunks(taps: int, dilation: int, sizes: tuple[int, ...]) -> None:
    x, weight, ring = _input(45), _weight(taps), _ring(taps, dilation)
    for start, count in chunks_of({1: 4, 5: 14, 40: 45}[max(sizes)], sizes):
        _agree(x[start : start + count], ring, weight, dilation, one_slot(1, start, count))


@pytest.mark.parametrize("channels", [1, 128, 300])
def test_channels(channels: int) -> None:
    """Less than a block, one block, a block and parts."""
    x, weight = _input(5, 1, channels), _weight(4, channels)
    _agree(x, _ring(4, 1, channels=channels), weight, 1, one_slot(0, 0, 5))


def test_spans_of_several_slots() -> None:
    weight, ring = _weight(4), _ring(4, 3, slots=4)
    before = rows_of([(0, 0, 20, 20), (2, 0, 3, 3), (3, 0, 1, 1)])
    _agree(_input(24, 3), ring, weight, 3, before)
    # A draft window, one that crosses a tile, an empty span, one that begins.
    window = rows_of([(2, 3, 4, 1), (0, 20, 33, 33), (1, 0, 0, 0), (3, 1, 2, 2), (1, 0, 5, 5)])
    _agree(_input(44, 4), ring, weight, 3, window)


def test_more_spans_than_one_block_of_them() -> None:
    weight, ring = _weight(2), _ring(2, 1, slots=17)
    _agree(_input(17), ring, weight, 1, rows_of([(s, 0, 1, 1) for s in range(17)]))


def test_no_numbers_stay_in_their_row() -> None:
    x, weight = _input(6), _weight(2)
    x[2, 5], x[3, 6] = torch.nan, torch.inf
    x[5] = -0.0
    ring = _ring(2, 1)
    wanted = reference.causal_convolution(x, ring.clone(), weight, 1, one_slot(0, 0, 6))
    actual = _convolved(x, ring, weight, 1, one_slot(0, 0, 6))
    assert torch.equal(actual.isnan(), wanted.isnan())
    assert same_bits(actual.nan_to_num(), wanted.nan_to_num())


def test_rows_are_independent() -> None:
    weight, ring = _weight(4), _ring(4, 3, slots=4)
    ring[:] = _input(4 * ring.shape[1], 7).view(ring.shape)
    x = _input(4, 99)

    def on_rows(first: int, last: int) -> Outputs:
        rows = rows_of([(slot, 15 + slot, 1, 1) for slot in range(first, last)])
        mine = ring.clone()
        return _convolved(x[first:last], mine, weight, 3, rows), mine[first:last]

    assert_rows_independent(on_rows, most=4)


def test_no_rows() -> None:
    assert _convolved(_input(0), _ring(4, 1), _weight(4), 1, rows_of([])).numel() == 0
