"""exp, sigmoid, silu and softplus of float32 tensors, by the operations of
`engine/reference/scalar.py` one by one. Launch kernels that use them with `enable_fp_fusion=False`.
"""

from __future__ import annotations

import triton
import triton.language as tl

HIGH = tl.constexpr(89.0)
LOW = tl.constexpr(-104.0)
LOG2E = tl.constexpr(1.4426950216293335)
ROUND = tl.constexpr(12582912.0)
LN2_HIGH = tl.constexpr(0.693359375)
LN2_LOW = tl.constexpr(-0.00021219444170128554)
E2 = tl.constexpr(0.4999999403953552)
E3 = tl.constexpr(0.1666652113199234)
E4 = tl.constexpr(0.04166838899254799)
E5 = tl.constexpr(0.00836874544620514)
E6 = tl.constexpr(0.0013814540579915047)
A0 = tl.constexpr(0.6666667461395264)
A1 = tl.constexpr(0.39998874068260193)
A2 = tl.constexpr(0.2861695885658264)
A3 = tl.constexpr(0.2142675518989563)
A4 = tl.constexpr(0.24304626882076263)


@triton.jit
def exp(x):
    """e ** x."""
    x = tl.where(x > HIGH, HIGH, x)
    x = tl.where(x < LOW, LOW, x)
    f = (x * LOG2E + ROUND) - ROUND
    n = f.to(tl.int32)
    r = x - f * LN2_HIGH
    r = r - f * LN2_LOW
    p = E6 * r + E5
    p = p * r + E4
    p = p * r + E3
    p = p * r + E2
    p = p * (r * r)
    p = p + r
    p = p + 1.0
    a = n >> 1
    b = n - a
    p = p * ((a + 127) << 23).to(tl.float32, bitcast=True)
    return p * ((b + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    one = tl.full(x.shape, 1.0, tl.float32)
    return tl.div_rn(one, exp(-x) + 1.0)


@triton.jit
def silu(x):
    """x / (1 + exp(-x))."""
    return tl.div_rn(x, exp(-x) + 1.0)


@triton.jit
def softplus(x):
    """max(x, 0) + log1p(exp(-|x|))."""
    m = tl.where(x < 0.0, 0.0, x)
    u = exp(-tl.abs(x))
    s = tl.div_rn(u, u + 2.0)
    z = s * s
    p = A4 * z + A3
    p = p * z + A2
    p = p * z + A1
    p = p * z + A0
    p = p * z
    p = p * s
    return m + (p + (s + s))
