"""exp, sigmoid, silu and softplus against the reference, bit for bit."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from engine.kernels import scalar
from engine.reference import scalar as reference
from tests.engine.reference.checks import same_bits

SPECIAL = [
    0.0, -0.0, np.inf, -np.inf, 88.72283, 88.72284, 89.0, -87.34, -103.97, -104.0, -104.1,
    17.0, -17.0, 1e-45, -1e-45, 3.4e38, -3.4e38,
]  # fmt: skip


@triton.jit
def _apply(X, OUT, WHICH: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    x = tl.load(X + at)
    if WHICH == 0:
        y = scalar.exp(x)
    elif WHICH == 1:
        y = scalar.sigmoid(x)
    elif WHICH == 2:
        y = scalar.silu(x)
    else:
        y = scalar.softplus(x)
    tl.store(OUT + at, y)


def _floats() -> np.ndarray:
    """Every sign and exponent, the range in which results are ordinary, and special values."""
    random = np.random.default_rng(0)
    any_bits = random.integers(0, 2**32, 8192, np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([any_bits, random.uniform(-110, 95, 8192).astype(np.float32)])
    x[: len(SPECIAL)] = SPECIAL
    return np.where(np.isnan(x), np.float32(1), x)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("which", "function"),
    list(enumerate([reference.exp, reference.sigmoid, reference.silu, reference.softplus])),
)
def test_same_bits(which: int, function: Callable[[np.float32], np.float32]) -> None:
    x = _floats()
    out = torch.full((x.size,), torch.nan)
    _apply[(1,)](torch.from_numpy(x), out, WHICH=which, B=x.size)
    wanted = np.array([function(v) for v in x], np.float32)
    number = ~np.isnan(wanted)  # silu(-inf)
    assert same_bits(out.numpy()[number], wanted[number])
    assert np.isnan(out.numpy()[~number]).all()


def test_the_constants_are_those_of_the_reference() -> None:
    names = [n for n, v in vars(scalar).items() if isinstance(v, tl.constexpr)]
    assert len(names) >= 16
    for name in names:
        assert np.float32(getattr(scalar, name).value) == getattr(reference, name)
