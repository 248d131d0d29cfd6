"""Hyper-connections against the reference, bit for bit."""

import pytest
import torch

from engine.kernels import hyper_connections, linear
from engine.kernels.hyper_connections import hyper_read, hyper_write
from engine.kernels.inputs import Input, as_input
from engine.reference import hyper_connections as reference
from tests.engine.kernels.packing import Pair, poison, tame_pair
from tests.engine.kernels.ptx import run_assembly
from tests.engine.reference.checks import Outputs, assert_rows_independent, same_bits

LOW = 6


def _streams(rows: int, count: int, width: int) -> torch.Tensor:
    return torch.randn(rows, count, width, generator=torch.Generator().manual_seed(count)) * 3


def _pairs(count: int, width: int, kind: str = "F32", low: int = LOW) -> tuple[Pair, ...]:
    return (
        tame_pair(kind, (low,), count * width, 1),
        tame_pair("F32", (count * width,), low, 2),
        tame_pair(kind, (count,), count * width, 3),
    )


def _assert_input_of(actual: Input, wanted: torch.Tensor) -> None:
    """The values, and the codes and scales that they quantise to."""
    assert same_bits(actual.values, wanted)
    rows, groups = len(wanted), -(-wanted.shape[1] // 32)
    for made, expected in zip(_rows_of(actual), _rows_of(as_input(wanted)), strict=True):
        assert same_bits(made[:rows, :groups], expected[:rows, :groups])


def _rows_of(x: Input) -> tuple[torch.Tensor, torch.Tensor]:
    blocks, groups = x.info.shape[:2]
    codes = x.codes.view(blocks, groups, 2, 8, 32).permute(0, 3, 1, 2, 4)
    return codes.reshape(-1, groups, 64), x.info.transpose(1, 2).reshape(-1, groups)


def _assert_same(
    rows: int, count: int, width: int, kind: str = "F32", low: int = LOW, zeros: int = 0
) -> None:
    streams, norm = _streams(rows, count, width), torch.linspace(0.5, 1.5, count * width)
    streams[zeros : zeros + 1] = -0.0  # the mean of terms of -0 is -0
    theirs, ours = zip(*_pairs(count, width, kind, low), strict=True)
    wanted, weights = reference.hyper_read(streams, norm, *theirs, 1e-6)
    actual, actual_weights = hyper_read(streams, norm, *ours, 1e-6)
    _assert_input_of(actual, wanted)
    assert actual_weights is not None
    assert weights is not None
    assert same_bits(actual_weights, weights)
    without, none = hyper_read(streams, norm, *ours[:2], None, 1e-6)
    assert none is None
    _assert_input_of(without, wanted)


@pytest.mark.parametrize(
    ("count", "width", "kind", "low"),
    [
        (1, 40, "F32", 6),
        (4, 32, "F32", 6),
        (2, 16, "Q8_0", 32),
        (3, 32, "F32", 32),
    ],
)
def test_step_by_step(count: int, width: int, kind: str, low: int) -> None:
    """Groups that are not whole, a number of streams that is no power of two."""
    _assert_same(3, count, width, kind, low, zeros=1)


@pytest.mark.parametrize(
    ("rows", "count", "width", "kind", "low"),
    [
        (1, 4, 32, "F32", 32),
        (9, 1, 64, "Q8_0", 32),
        (3, 2, 288, "F32", 32),
        (2, 1, 512, "BF16", 32),
        (2, 4, 32, "F32", 160),
    ],
)
def test_few_rows(rows: int, count: int, width: int, kind: str, low: int) -> None:
    """Segments that are whole or not, and an odd number of them."""
    _assert_same(rows, count, width, kind, low)


def test_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a block, and a last block that is not whole; two quads of `up`."""
    monkeypatch.setattr(hyper_connections, "_FEW", 4)
    monkeypatch.setattr(hyper_connections, "_PROGRAMS", 2)
    _assert_same(11, 2, 32, low=160)


@pytest.mark.parametrize("few", [0, 64])
def test_assembly(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_assembly(monkeypatch)
    for module in (hyper_connections, linear):
        monkeypatch.setattr(module, "assembly", lambda tensor: True)
    monkeypatch.setattr(hyper_connections, "_FEW", few)
    _assert_same(9, 4, 32, low=32)


@pytest.mark.parametrize(
    ("count", "width", "low", "zeros"),
    [
        (1, 512, 192, 1),
        (2, 1024, 32, 0),
        (4, 512, 160, 1),
    ],
)
def test_one_row(
    count: int, width: int, low: int, zeros: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole segments; quads of `up` that are whole or not."""
    run_assembly(monkeypatch)
    poison(monkeypatch)
    monkeypatch.setattr(hyper_connections, "assembly", lambda tensor: True)
    monkeypatch.delattr(hyper_connections.kernels, "low")
    _assert_same(1, count, width, "BF16", low, zeros)


def test_write() -> None:
    streams, y, weights = _streams(3, 4, 40), torch.randn(3, 40), torch.rand(3, 4) * 2
    wanted = streams.clone()
    reference.hyper_write(wanted, weights, y)
    hyper_write(streams, weights, y)
    assert same_bits(streams, wanted)


def test_rows_are_independent() -> None:
    """Also across the borders of row tiles of the matrix products."""
    streams, norm = _streams(6, 2, 40), torch.linspace(0.5, 1.5, 2 * 40)
    _, ours = zip(*_pairs(2, 40), strict=True)

    def on_rows(first: int, last: int) -> Outputs:
        x, weights = hyper_read(streams[first:last], norm, *ours, 1e-6)
        assert weights is not None
        return x.values, weights

    assert_rows_independent(on_rows, 2)
    whole = on_rows(0, 6)
    for a, b in zip(whole, on_rows(4, 6), strict=True):
        assert same_bits(a[4:], b)


def test_no_rows() -> None:
    _, ours = zip(*_pairs(2, 40), strict=True)
    x, weights = hyper_read(torch.empty(0, 2, 40), torch.ones(2 * 40), *ours, 1e-6)
    assert x.values.shape == (0, 40)
    assert weights is not None
    assert weights.shape == (0, 2)
