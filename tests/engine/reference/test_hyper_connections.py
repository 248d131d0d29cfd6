"""Hyper-connections: literal order, float64, row independence."""

import numpy as np
import pytest
import torch

from engine.reference.hyper_connections import hyper_read, hyper_write
from tests.engine.reference import literal, tolerances
from tests.engine.reference.checks import (
    Outputs,
    assert_all_written,
    assert_rows_independent,
    same_bits,
)
from tests.engine.reference.packing import q8_matrix, random_matrix

WIDTH, LOW = 48, 20
F = np.float32


def _streams(rows: int, count: int) -> torch.Tensor:
    return torch.randn(rows, count, WIDTH, generator=torch.Generator().manual_seed(count)) * 3


def _norm(count: int) -> torch.Tensor:
    return torch.linspace(0.5, 1.5, count * WIDTH)


def _normed(streams: np.ndarray, weight: np.ndarray) -> np.ndarray:
    parts = [
        literal.rms_norm(x, weight[c * WIDTH : (c + 1) * WIDTH], 1e-6)
        for c, x in enumerate(streams)
    ]
    return np.concatenate(parts)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_order(count: int) -> None:
    streams, norm = _streams(2, count), _norm(count)
    (down, d), (up, u), (inject, i) = (
        random_matrix(LOW, count * WIDTH, 1),
        random_matrix(count * WIDTH, LOW, 2),
        random_matrix(count, count * WIDTH, 3),
    )
    x, weights = hyper_read(streams, norm, d, u, i, 1e-6)
    assert weights is not None
    for r in range(2):
        normed = _normed(streams[r].numpy(), norm.numpy())
        low = literal.float_linear(normed[None], down)
        low = np.array([[literal.silu(F(v / F(count))) for v in low[0]]], F)
        mix = literal.float_linear(low, up)[0]
        wanted = np.empty(WIDTH, F)
        for column in range(WIDTH):
            acc = None
            for c in range(count):
                at = c * WIDTH + column
                term = F(literal.sigmoid(mix[at]) * normed[at])
                acc = term if acc is None else F(acc + term)
            assert acc is not None
            wanted[column] = acc / F(count)
        assert same_bits(x[r], wanted)
        injected = literal.float_linear(normed[None], inject)[0]
        shares = [F(F(2) * literal.sigmoid(F(v / F(count)))) for v in injected]
        assert same_bits(weights[r], np.array(shares, F))


def test_against_float64() -> None:
    count, streams, norm = 4, _streams(9, 4), _norm(4)
    (down, d), (up, u), (inject, i) = (
        random_matrix(LOW, count * WIDTH, 1),
        random_matrix(count * WIDTH, LOW, 2),
        random_matrix(count, count * WIDTH, 3),
    )
    x, weights = hyper_read(streams, norm, d, u, i, 1e-6)
    normed = torch.nn.functional.rms_norm(streams.double(), (WIDTH,), eps=1e-6)
    normed = normed.reshape(9, -1) * norm.double()
    low = torch.nn.functional.silu(normed @ torch.from_numpy(down).double().T / count)
    mix = (low @ torch.from_numpy(up).double().T).sigmoid()
    wanted = (mix * normed).view(9, count, WIDTH).mean(1)
    assert (x - wanted).abs().max() <= tolerances.HYPER_CONNECTIONS * wanted.abs().max()
    shares = 2 * (normed @ torch.from_numpy(inject).double().T / count).sigmoid()
    assert (weights - shares).abs().max() <= tolerances.HYPER_CONNECTIONS


def test_without_inject_there_are_no_weights() -> None:
    streams, norm = _streams(3, 2), _norm(2)
    (_, d), (_, u), (_, i) = (
        random_matrix(LOW, 2 * WIDTH, 1),
        random_matrix(2 * WIDTH, LOW, 2),
        random_matrix(2, 2 * WIDTH, 3),
    )
    x, weights = hyper_read(streams, norm, d, u, None, 1e-6)
    assert weights is None
    assert same_bits(x, hyper_read(streams, norm, d, u, i, 1e-6)[0])


def test_write() -> None:
    streams, y = _streams(3, 4), torch.randn(3, WIDTH)
    weights = torch.rand(3, 4) * 2
    wanted = streams.numpy() + weights.numpy()[:, :, None] * y.numpy()[:, None]
    hyper_write(streams, weights, y)
    assert same_bits(streams, wanted)


def test_rows_are_independent() -> None:
    """With integer matrices; K = 96 and 64 fill their groups."""
    streams, norm = _streams(16, 2), _norm(2)
    down, up, inject = q8_matrix(64, 96, 1), q8_matrix(96, 64, 2), q8_matrix(2, 96, 3)
    y = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(0))

    def on_rows(first: int, last: int) -> Outputs:
        x, weights = hyper_read(streams[first:last], norm, down, up, inject, 1e-6)
        assert weights is not None
        written = streams[first:last].clone()
        hyper_write(written, weights, y[first:last])
        return x, weights, written

    assert_rows_independent(on_rows)


def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    streams, norm = _streams(5, 2), _norm(2)
    down, up, inject = q8_matrix(64, 96, 1), q8_matrix(96, 64, 2), q8_matrix(2, 96, 3)

    def operator() -> Outputs:
        x, weights = hyper_read(streams, norm, down, up, inject, 1e-6)
        assert weights is not None
        return x, weights

    assert_all_written(operator, monkeypatch)
