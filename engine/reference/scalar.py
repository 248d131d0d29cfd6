"""Strata's own exp, sigmoid, silu and softplus: explicit float32 operations, one a line.

Every line is one IEEE float32 operation (round to nearest even), a comparison, or an exact integer
operation, so any machine without contraction gives the same bits. float32 in, float32 out.

exp: below -104 the result is 0, above 88.72284 it is inf, NaN stays NaN, exp(0) is exactly 1.
Results under 2**-126 are subnormal (rounded once).
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import numpy as np

from engine.reference.compiled import compiled

F = np.float32
I = np.int32  # noqa: E741  (the name of the type in the one-operation lines below)

ZERO = F(0.0)
ONE = F(1.0)
TWO = F(2.0)
HIGH = F(89.0)  # exp(89) overflows
LOW = F(-104.0)  # exp(-104) is under half of the smallest subnormal
LOG2E = F(1.4426950216293335)
ROUND = F(12582912.0)  # 1.5 * 2**23: adding it rounds to an integer, half to even
LN2_HIGH = F(0.693359375)  # 355/512: n * LN2_HIGH is exact for |n| < 2**15
LN2_LOW = F(-0.00021219444170128554)  # ln 2 - LN2_HIGH
E2 = F(0.4999999403953552)
E3 = F(0.1666652113199234)
E4 = F(0.04166838899254799)
E5 = F(0.00836874544620514)
E6 = F(0.0013814540579915047)
# log1p(u) = 2 s + s z P(z), s = u / (2 + u), z = s * s <= 1/9
A0 = F(0.6666667461395264)
A1 = F(0.39998874068260193)
A2 = F(0.2861695885658264)
A3 = F(0.2142675518989563)
A4 = F(0.24304626882076263)


@compiled
def exp(x: Any) -> Any:
    """e ** x."""
    if x > HIGH:
        x = HIGH
    if x < LOW:
        x = LOW
    t = x * LOG2E
    t = t + ROUND
    f = t - ROUND  # rint(x * LOG2E)
    n = I(f)
    h = f * LN2_HIGH
    r = x - h
    h = f * LN2_LOW
    r = r - h
    p = E6 * r
    p = p + E5
    p = p * r
    p = p + E4
    p = p * r
    p = p + E3
    p = p * r
    p = p + E2
    z = r * r
    p = p * z
    p = p + r
    p = p + ONE
    # 2**n in two steps, so that neither leaves the normal range: n = a + b
    a = I(n >> I(1))  # arithmetic shift: floor(n / 2)
    b = I(n - a)
    p = p * I((a + I(127)) << I(23)).view(np.float32)
    return p * I((b + I(127)) << I(23)).view(np.float32)


@compiled
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    e = exp(-x)
    e = e + ONE
    return ONE / e


@compiled
def silu(x: Any) -> Any:
    """x * sigmoid(x), as one division."""
    e = exp(-x)
    e = e + ONE
    return x / e


@compiled
def softplus(x: Any) -> Any:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)); equals x from about 17 on."""
    m = x
    if m < ZERO:
        m = ZERO
    u = exp(-abs(x))
    d = u + TWO
    s = u / d
    z = s * s
    p = A4 * z
    p = p + A3
    p = p * z
    p = p + A2
    p = p * z
    p = p + A1
    p = p * z
    p = p + A0
    p = p * z
    p = p * s
    s = s + s
    p = p + s
    return m + p
