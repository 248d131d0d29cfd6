"""exp, sigmoid, silu and softplus by explicit float32 operations, in Triton and in numpy.

Both follow the same list of operations (docs/decisions.md); the numpy side is the CPU's bits.
"""

import numpy as np
import triton
import triton.language as tl

F32 = np.float32
LOG2E, ROUND = 1.4426950216293335, 12582912.0
LN2_HIGH, LN2_LOW = 0.693359375, -0.00021219444170128554
EXP = (0.0013814540579915047, 0.00836874544620514, 0.04166838899254799, 0.1666652113199234,
       0.4999999403953552)  # fmt: skip
LOG1P = (0.24304626882076263, 0.2142675518989563, 0.2861695885658264, 0.39998874068260193,
         0.6666667461395264)  # fmt: skip
_LOG2E, _ROUND = tl.constexpr(LOG2E), tl.constexpr(ROUND)
_HIGH, _LOW = tl.constexpr(LN2_HIGH), tl.constexpr(LN2_LOW)
_E6, _E5, _E4, _E3, _E2 = (tl.constexpr(value) for value in EXP)
_A4, _A3, _A2, _A1, _A0 = (tl.constexpr(value) for value in LOG1P)


@triton.jit
def exp(x):
    """exp of a float32 tensor."""
    x = tl.where(x > 89.0, 89.0, x)
    x = tl.where(x < -104.0, -104.0, x)
    f = (x * _LOG2E + _ROUND) - _ROUND
    n = f.to(tl.int32)
    r = x - f * _HIGH
    r = r - f * _LOW
    p = _E6 * r + _E5
    p = p * r + _E4
    p = p * r + _E3
    p = p * r + _E2
    p = p * (r * r)
    p = p + r
    p = p + 1.0
    a = n >> 1
    b = n - a
    p = p * ((a + 127) << 23).to(tl.float32, bitcast=True)
    return p * ((b + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) with an IEEE division."""
    one = tl.full(x.shape, 1.0, tl.float32)
    return tl.div_rn(one, exp(-x) + 1.0)


@triton.jit
def silu(x):
    """x / (1 + exp(-x)) with an IEEE division."""
    return tl.div_rn(x, exp(-x) + 1.0)


@triton.jit
def softplus(x):
    """max(x, 0) + log1p(exp(-|x|))."""
    m = tl.where(x < 0.0, 0.0, x)
    u = exp(-tl.abs(x))
    s = tl.div_rn(u, u + 2.0)
    z = s * s
    p = _A4 * z + _A3
    p = p * z + _A2
    p = p * z + _A1
    p = p * z + _A0
    p = p * z
    p = p * s
    return m + (p + (s + s))


@triton.jit
def apply(X, OUT, n, WHICH: tl.constexpr, B: tl.constexpr):
    """OUT = function WHICH of X (0 exp, 1 sigmoid, 2 silu, 3 softplus)."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    x = tl.load(X + at, mask=at < n, other=0.0)
    if WHICH == 0:
        y = exp(x)
    elif WHICH == 1:
        y = sigmoid(x)
    elif WHICH == 2:
        y = silu(x)
    else:
        y = softplus(x)
    tl.store(OUT + at, y, mask=at < n)


def _horner(coefficients: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    p = F32(coefficients[0]) * x + F32(coefficients[1])
    for c in coefficients[2:]:
        p = p * x + F32(c)
    return p


def exp_cpu(x: np.ndarray) -> np.ndarray:
    """The numpy side of `exp`; float32 in and out."""
    x = np.where(x > F32(89.0), F32(89.0), x)
    x = np.where(x < F32(-104.0), F32(-104.0), x)
    f = (x * F32(LOG2E) + F32(ROUND)) - F32(ROUND)
    n = np.where(np.isnan(f), F32(0), f).astype(np.int32)
    r = x - f * F32(LN2_HIGH)
    r = r - f * F32(LN2_LOW)
    p = _horner(EXP, r) * (r * r)
    p = p + r
    p = p + F32(1.0)
    a = n >> 1
    b = n - a
    p = p * ((a + 127) << 23).astype(np.int32).view(F32)
    return p * ((b + 127) << 23).astype(np.int32).view(F32)


def sigmoid_cpu(x: np.ndarray) -> np.ndarray:
    """The numpy side of `sigmoid`."""
    return F32(1.0) / (exp_cpu(-x) + F32(1.0))


def silu_cpu(x: np.ndarray) -> np.ndarray:
    """The numpy side of `silu`."""
    return x / (exp_cpu(-x) + F32(1.0))


def softplus_cpu(x: np.ndarray) -> np.ndarray:
    """The numpy side of `softplus`."""
    m = np.where(x < F32(0.0), F32(0.0), x)
    u = exp_cpu(-np.abs(x))
    s = u / (u + F32(2.0))
    z = s * s
    p = _horner(LOG1P, z) * z
    p = p * s
    return m + (p + (s + s))


FUNCTIONS = (
    ("exp", exp_cpu),
    ("sigmoid", sigmoid_cpu),
    ("silu", silu_cpu),
    ("softplus", softplus_cpu),
)
