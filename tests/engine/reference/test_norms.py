"""RMS norm: literal order, torch, row independence."""

import numpy as np
import pytest
import torch

from engine.reference.norms import rms_norm
from tests.engine.reference import literal, tolerances
from tests.engine.reference.checks import (
    Outputs,
    assert_all_written,
    assert_rows_independent,
    same_bits,
)


def _input(rows: int, width: int) -> torch.Tensor:
    random = np.random.default_rng(width)
    sizes = np.exp2(random.integers(-20, 20, (rows, 1))).astype(np.float32)
    return torch.from_numpy(random.standard_normal((rows, width), np.float32) * sizes)


def _weight(width: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).uniform(0.5, 1.5, width).astype(np.float32))


@pytest.mark.parametrize(("width", "runs"), [(5, 1), (32, 3), (100, 1), (512, 2), (1300, 1)])
@pytest.mark.parametrize("own_weights", [True, False])
def test_order(width: int, runs: int, own_weights: bool) -> None:
    x = _input(2, width * runs)
    weight = _weight(width * runs if own_weights else width)
    repeated = weight.repeat(1 if own_weights else runs).numpy()
    wanted = [
        np.concatenate(
            [
                literal.rms_norm(row[at : at + width], repeated[at : at + width], 1e-6)
                for at in range(0, len(row), width)
            ]
        )
        for row in x.numpy()
    ]
    assert same_bits(rms_norm(x, weight, width, 1e-6), np.array(wanted))


@pytest.mark.parametrize("eps", [1e-6, 1e-3])
def test_against_torch(eps: float) -> None:
    x, weight = _input(7, 1300), _weight(1300)
    wanted = torch.nn.functional.rms_norm(x.double(), (1300,), weight.double(), eps)
    error = (rms_norm(x, weight, 1300, eps).double() - wanted).abs() / wanted.abs().max()
    assert error.max() <= tolerances.NORM


def test_zeros_stay_zeros() -> None:
    assert not rms_norm(torch.zeros(1, 64), _weight(64), 64, 1e-6).any()


def test_rows_are_independent() -> None:
    x, weight = _input(16, 600), _weight(300)

    def on_rows(first: int, last: int) -> Outputs:
        return (rms_norm(x[first:last], weight, 300, 1e-6),)

    assert_rows_independent(on_rows)


def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = _input(3, 70), _weight(70)
    assert_all_written(lambda: (rms_norm(x, weight, 70, 1e-6),), monkeypatch)
