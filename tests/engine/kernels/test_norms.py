"""RMS norms against the reference, bit for bit."""

import pytest
import torch

from engine.kernels.norms import rms_norm
from engine.reference import norms as reference
from tests.engine.reference.checks import Outputs, assert_rows_independent, same_bits


def _x(rows: int, width: int) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(width)) * 3


# A run of less than a group, of whole groups, of a group and a part, of 1, 2, 3 and 5 segments.
@pytest.mark.parametrize(
    ("width", "runs", "period"),
    [(20, 4, 4), (32, 3, 1), (48, 2, 2), (256, 1, 1), (513, 2, 1), (1100, 1, 1), (2560, 1, 1)],
)
def test_same_bits(width: int, runs: int, period: int) -> None:
    x, weight = _x(2, runs * width), torch.linspace(0.5, 1.5, period * width)
    wanted = reference.rms_norm(x, weight, width, 1e-6)
    assert same_bits(rms_norm(x, weight, width, 1e-6), wanted)


def test_zeros_and_no_numbers() -> None:
    """A row of zeros stays one; a NaN or an infinity stays in its row."""
    x = _x(4, 64)
    x[0] = 0
    x[1, 7], x[2, 40] = torch.nan, torch.inf
    weight = torch.ones(64)
    actual, wanted = rms_norm(x, weight, 64, 1e-6), reference.rms_norm(x, weight, 64, 1e-6)
    assert torch.equal(actual.isnan(), wanted.isnan())
    assert same_bits(actual.nan_to_num(), wanted.nan_to_num())


def test_rows_are_independent() -> None:
    x, weight = _x(16, 96), torch.linspace(0.5, 1.5, 48)

    def on_rows(first: int, last: int) -> Outputs:
        return (rms_norm(x[first:last], weight, 48, 1e-6),)

    assert_rows_independent(on_rows)


def test_no_rows() -> None:
    assert rms_norm(torch.empty(0, 96), torch.ones(48), 48, 1e-6).shape == (0, 96)
