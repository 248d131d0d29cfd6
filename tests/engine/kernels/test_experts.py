"""Router, routed and shared experts against the reference, bit for bit."""

import numpy as np
import pytest
import torch

from engine.kernels import experts as kernels
from engine.kernels.experts_route import top
from engine.reference import experts as reference
from tests.engine.kernels.mixtures import FLOATS, INTEGERS, WIDTH, Kinds, mixture, residuals
from tests.engine.kernels.packing import activations, poison
from tests.engine.reference.checks import same_bits


def _reference_top(logits: torch.Tensor, used: int) -> tuple[np.ndarray, np.ndarray]:
    experts = np.empty((len(logits), used), np.int32)
    shares = np.empty((len(logits), used), np.float32)
    reference.top_experts(logits.numpy(), experts, shares)
    return experts, shares


@pytest.mark.parametrize(("count", "used"), [(5, 5), (40, 4), (520, 10), (3, 1)])
def test_top(count: int, used: int) -> None:
    logits = torch.randn(2, count, generator=torch.Generator().manual_seed(count))
    best, parts = _reference_top(logits, used)
    experts, shares = top(logits, used)
    assert same_bits(experts, best)
    assert same_bits(shares, parts)


def test_equal_probabilities_take_the_lowest_experts_first() -> None:
    """Also probabilities of 0, far below the best one, and those that division makes equal."""
    logits = torch.tensor([[0, 0, 0, 0, 3000, 0], [1, 1 + 1e-7, 1 - 1e-7, 1, 1, 1 + 2e-7]])
    best, parts = _reference_top(logits, 3)
    experts, shares = top(logits, 3)
    assert experts[0].tolist() == [4, 0, 1]
    assert same_bits(experts, best)
    assert same_bits(shares, parts)


def test_a_row_without_numbers_is_not_hidden() -> None:
    logits = torch.randn(2, 9)
    logits[1, 3] = torch.nan
    experts, shares = top(logits, 2)
    alone = top(logits[:1], 2)
    assert same_bits(experts[0], alone[0][0])
    assert same_bits(shares[0], alone[1][0])
    assert experts[1].tolist() == [0, 0]
    assert torch.isnan(shares[1]).all()


@pytest.mark.parametrize(
    ("routed", "shared", "streams"),
    [(INTEGERS, INTEGERS, 4), (INTEGERS, FLOATS, 1), (FLOATS, INTEGERS, 1), (FLOATS, FLOATS, 2)],
)
def test_mixture(
    routed: Kinds, shared: Kinds, streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, x = mixture(routed, shared), activations(2, WIDTH)
    residual, shares = residuals(2, streams)
    wanted = both.expected(residual, shares, x)
    poison(monkeypatch)
    assert same_bits(both.got(residual, shares, x), wanted)


@pytest.mark.parametrize(("few", "crowded"), [(80, 16), (0, 16), (0, 2)])
def test_rows_are_independent(few: int, crowded: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eleven rows of two experts each: alone, in blocks, and as of prompts; some experts have more
    than eight pairs."""
    monkeypatch.setattr(kernels, "_FEW", few)
    monkeypatch.setattr(kernels, "_CROWDED", crowded)
    both, x = mixture(), activations(11, WIDTH)
    x[1:10] = x[1]
    residual, shares = residuals(11, 2)
    assert shares is not None
    whole = both.got(residual, shares, x)
    assert same_bits(whole, both.expected(residual, shares, x))
    for i in (0, 9, 10):
        row = slice(i, i + 1)
        assert same_bits(both.got(residual[row], shares[row], x[row])[0], whole[i])
