"""Hyper-connections against the reference, bit for bit."""

import pytest
import torch

from engine.kernels.hyper_connections import hyper_read, hyper_write
from engine.reference import hyper_connections as reference
from tests.engine.kernels.packing import Pair, tame_pair
from tests.engine.reference.checks import Outputs, assert_rows_independent, same_bits

WIDTH, LOW = 40, 6


def _streams(rows: int, count: int) -> torch.Tensor:
    return torch.randn(rows, count, WIDTH, generator=torch.Generator().manual_seed(count)) * 3


def _pairs(count: int, kind: str = "F32") -> tuple[Pair, ...]:
    return (
        tame_pair(kind, (LOW,), count * WIDTH, 1),
        tame_pair("F32", (count * WIDTH,), LOW, 2),
        tame_pair(kind, (count,), count * WIDTH, 3),
    )


@pytest.mark.parametrize(("count", "kind"), [(1, "F32"), (3, "F32"), (4, "F32"), (4, "Q8_0")])
def test_read(count: int, kind: str) -> None:
    streams, norm = _streams(3, count), torch.linspace(0.5, 1.5, count * WIDTH)
    streams[1] = -0.0  # the mean of terms of -0 is -0
    theirs, ours = zip(*_pairs(count, kind), strict=True)
    wanted, weights = reference.hyper_read(streams, norm, *theirs, 1e-6)
    actual, actual_weights = hyper_read(streams, norm, *ours, 1e-6)
    assert same_bits(actual, wanted)
    assert actual_weights is not None
    assert weights is not None
    assert same_bits(actual_weights, weights)
    without, none = hyper_read(streams, norm, *ours[:2], None, 1e-6)
    assert none is None
    assert same_bits(without, wanted)


def test_write() -> None:
    streams, y, weights = _streams(3, 4), torch.randn(3, WIDTH), torch.rand(3, 4) * 2
    wanted = streams.clone()
    reference.hyper_write(wanted, weights, y)
    hyper_write(streams, weights, y)
    assert same_bits(streams, wanted)


def test_rows_are_independent() -> None:
    """Also across the borders of row tiles of the matrix products."""
    streams, norm = _streams(6, 2), torch.linspace(0.5, 1.5, 2 * WIDTH)
    _, ours = zip(*_pairs(2), strict=True)

    def on_rows(first: int, last: int) -> Outputs:
        x, weights = hyper_read(streams[first:last], norm, *ours, 1e-6)
        assert weights is not None
        return x, weights

    assert_rows_independent(on_rows, 2)
    whole = on_rows(0, 6)
    for a, b in zip(whole, on_rows(4, 6), strict=True):
        assert same_bits(a[4:], b)


def test_no_rows() -> None:
    _, ours = zip(*_pairs(2), strict=True)
    x, weights = hyper_read(torch.empty(0, 2, WIDTH), torch.ones(2 * WIDTH), *ours, 1e-6)
    assert x.shape == (0, WIDTH)
    assert weights is not None
    assert weights.shape == (0, 2)
