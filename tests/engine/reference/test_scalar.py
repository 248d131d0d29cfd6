"""exp, sigmoid, silu and softplus: bits, accuracy, limits."""

from collections.abc import Callable

import numpy as np
import pytest

from engine.reference import scalar
from tests.engine.reference import literal, tolerances

Scalar = Callable[[np.float32], float]

NAMES = ("exp", "sigmoid", "silu", "softplus")
SPECIAL = np.array(
    [
        *(0.0, -0.0, 1e-45, -1e-45, 1e-30, 0.34657359, -0.34657359, 17, 20),
        *(88.7, 88.72284, 88.8, 89, 90, 1e38, np.inf),
        *(-87.3, -87.4, -100, -103.2, -103.98, -104, -105, -1e38, -np.inf),
    ],
    np.float32,
)
GRID = np.linspace(-104, 89, 40001, dtype=np.float64).astype(np.float32)


def _apply(function: Scalar, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array([function(value) for value in x], np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_bits(name: str) -> None:
    random = np.random.default_rng(1)
    x = np.concatenate([SPECIAL, GRID[::40], random.standard_normal(1000, np.float32) * 8])
    actual = _apply(getattr(scalar, name), x)
    wanted = _apply(getattr(literal, name), x)
    np.testing.assert_array_equal(actual.view(np.uint32), wanted.view(np.uint32))


def _exact(name: str, x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    if name == "exp":
        return np.exp(wide)
    if name == "softplus":
        return np.logaddexp(0, wide)
    return (wide if name == "silu" else 1) / (1 + np.exp(-wide))


@pytest.mark.parametrize(
    ("name", "most_ulp"),
    [
        ("exp", tolerances.EXP_ULP),
        ("sigmoid", tolerances.SIGMOID_ULP),
        ("silu", tolerances.SILU_ULP),
        ("softplus", tolerances.SOFTPLUS_ULP),
    ],
)
def test_accuracy(name: str, most_ulp: float) -> None:
    """Below -88 the denominators of sigmoid and silu overflow, and the results are 0."""
    lowest = -104 if name in ("exp", "softplus") else -88
    x = GRID[(lowest < GRID) & (GRID < 88.7)]
    x = np.concatenate([x, np.linspace(-2, 2, 20001).astype(np.float32)])
    exact = _exact(name, x)
    ulp = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    error = np.abs(_apply(getattr(scalar, name), x) - exact) / ulp
    assert error.max() <= most_ulp, f"{error.max():.3f} ulp at {x[error.argmax()]}"


def test_exp_at_its_ends() -> None:
    assert scalar.exp(np.float32(0)) == 1.0
    assert scalar.exp(np.float32(-0.0)) == 1.0
    assert scalar.exp(np.float32(88.7)) < np.inf
    assert scalar.exp(np.float32(88.73)) == np.inf
    assert scalar.exp(np.float32(np.inf)) == np.inf
    assert scalar.exp(np.float32(-np.inf)) == 0.0
    assert scalar.exp(np.float32(-103)) > 0.0


@pytest.mark.parametrize("name", NAMES)
def test_no_number_stays_none(name: str) -> None:
    assert np.isnan(getattr(scalar, name)(np.float32(np.nan)))


@pytest.mark.parametrize("name", ["exp", "sigmoid", "softplus"])
def test_monotone_on_a_grid(name: str) -> None:
    """Between grid points: float32 neighbours may swap their last bit."""
    values = _apply(getattr(scalar, name), GRID)
    assert (np.diff(values[np.isfinite(values)]) >= 0).all()


def test_limits() -> None:
    large, inf = np.float32(1e30), np.float32(np.inf)
    assert scalar.sigmoid(large) == scalar.sigmoid(inf) == 1.0
    assert scalar.sigmoid(-large) == scalar.sigmoid(-inf) == 0.0
    assert scalar.silu(large) == large
    assert scalar.silu(-large) == 0.0
    assert scalar.softplus(large) == large
    assert scalar.softplus(np.float32(20)) == 20.0
    assert scalar.softplus(-large) == 0.0
