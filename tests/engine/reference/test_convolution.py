"""The causal convolution: literal order, torch conv1d, rings, drafts."""

import pytest
import torch

from engine.reference.convolution import causal_convolution
from engine.rows import rows_of
from tests.engine.reference import literal, tolerances
from tests.engine.reference.checks import (
    Outputs,
    assert_all_written,
    assert_rows_independent,
    same_bits,
)
from tests.engine.reference.spans import CHUNKINGS, chunks_of, one_slot

SHAPES = [(4, 1), (4, 3), (2, 1), (3, 2), (1, 1)]
"""Taps and dilation."""
CHANNELS = 37
DRAFTS = 3


def _input(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, CHANNELS, generator=torch.Generator().manual_seed(seed))


def _weight(taps: int) -> torch.Tensor:
    return torch.randn(CHANNELS, taps, generator=torch.Generator().manual_seed(taps))


def _ring(taps: int, dilation: int, slots: int = 3) -> torch.Tensor:
    """Just the reach and the most draft rows, with garbage in it."""
    return torch.full((slots, (taps - 1) * dilation + DRAFTS, CHANNELS), torch.nan)


@pytest.mark.parametrize(("taps", "dilation"), SHAPES)
def test_order(taps: int, dilation: int) -> None:
    x, weight = _input(20), _weight(taps)
    actual = causal_convolution(
        x, _ring(taps, dilation), weight, dilation, one_slot(1, 0, 20)
    ).numpy()
    for row in range(20):
        sources = [row - (taps - 1 - tap) * dilation for tap in range(taps)]
        history = [x[s].numpy() if s >= 0 else None for s in sources]
        assert same_bits(actual[row], literal.convolve(history, weight.numpy()))


@pytest.mark.parametrize(("taps", "dilation"), SHAPES)
def test_against_torch(taps: int, dilation: int) -> None:
    x, weight = _input(50), _weight(taps)
    actual = causal_convolution(x, _ring(taps, dilation), weight, dilation, one_slot(0, 0, 50))
    wanted = torch.nn.functional.silu(
        torch.nn.functional.conv1d(
            torch.nn.functional.pad(x.double().T, ((taps - 1) * dilation, 0)),
            weight.double()[:, None],
            groups=CHANNELS,
            dilation=dilation,
        )
    ).T
    error = (actual.double() - wanted).abs().max() / wanted.abs().max()
    assert error <= tolerances.CONVOLUTION


@pytest.mark.parametrize(("taps", "dilation"), SHAPES)
def test_any_chunking_gives_the_same_bits(taps: int, dilation: int) -> None:
    x, weight = _input(60), _weight(taps)
    whole = None
    for sizes in CHUNKINGS:
        ring = _ring(taps, dilation)
        parts = [
            causal_convolution(x[a : a + n], ring, weight, dilation, one_slot(2, a, n))
            for a, n in chunks_of(60, sizes)
        ]
        out = torch.cat(parts)
        whole = out if whole is None else whole
        assert same_bits(out, whole)


@pytest.mark.parametrize("kept", range(1, DRAFTS + 2))
@pytest.mark.parametrize(("taps", "dilation"), SHAPES)
def test_dropped_drafts_leave_no_trace(taps: int, dilation: int, kept: int) -> None:
    x, weight = _input(60), _weight(taps)
    ring = _ring(taps, dilation)
    causal_convolution(x[:40], ring, weight, dilation, one_slot(0, 0, 40))
    window = torch.cat([x[40 : 40 + kept], _input(1 + DRAFTS - kept, seed=8)])
    causal_convolution(window, ring, weight, dilation, one_slot(0, 40, 1 + DRAFTS, 1))
    after = [
        causal_convolution(x[p : p + 1], ring, weight, dilation, one_slot(0, p, 1))
        for p in range(40 + kept, 60)
    ]
    whole = causal_convolution(x, _ring(taps, dilation), weight, dilation, one_slot(0, 0, 60))
    assert same_bits(torch.cat(after), whole[40 + kept :])


def test_rows_are_independent() -> None:
    weight, ring = _weight(4), _ring(4, 3, slots=16)
    for slot in range(16):
        causal_convolution(_input(5 + slot, slot), ring, weight, 3, one_slot(slot, 0, 5 + slot))
    x = _input(16, 99)

    def on_rows(first: int, last: int) -> Outputs:
        rows = rows_of([(slot, 5 + slot, 1, 1) for slot in range(first, last)])
        return (causal_convolution(x[first:last], ring, weight, 3, rows),)

    assert_rows_independent(on_rows)


def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, ring = _input(9), _weight(4), _ring(4, 1)
    assert_all_written(
        lambda: (causal_convolution(x, ring, weight, 1, one_slot(0, 0, 9)),), monkeypatch
    )
