"""The order of float operations, written once more from docs/decisions.md: slow and literal.

Scalars are numpy float32, one operation at a time; nothing here is shared with the engine. Arrays
are only read and written element by element.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import frexp, inf, isnan

import numpy as np

F = np.float32
ZERO, ONE = F(0), F(1)


def exp(x: np.float32) -> np.float32:
    """e**x: reduction by ln 2 in two parts, a polynomial of degree 6, 2**n in two factors."""
    if isnan(x):
        return x
    x = min(max(x, F(-104)), F(89))
    t = F(F(x * F(1.4426950216293335)) + F(12582912))
    f = F(t - F(12582912))
    r = F(x - F(f * F(0.693359375)))
    r = F(r - F(f * F(-0.00021219444170128554)))
    p = F(0.0013814540579915047)
    for c in (0.00836874544620514, 0.04166838899254799, 0.1666652113199234, 0.4999999403953552):
        p = F(F(p * r) + F(c))
    p = F(p * F(r * r))
    p = F(F(p + r) + ONE)
    n = int(f)
    a = n // 2
    return F(F(p * F(2.0**a)) * F(2.0 ** (n - a)))


def sigmoid(x: np.float32) -> np.float32:
    """1 / (1 + e**-x)."""
    return F(ONE / F(exp(F(-x)) + ONE))


def silu(x: np.float32) -> np.float32:
    """x / (1 + e**-x)."""
    return F(x / F(exp(F(-x)) + ONE))


def softplus(x: np.float32) -> np.float32:
    """max(x, 0) + log1p(e**-|x|), the logarithm as a series in s = u / (2 + u)."""
    u = exp(F(-abs(x)))
    s = F(u / F(u + F(2)))
    z = F(s * s)
    p = F(0.24304626882076263)
    for c in (0.2142675518989563, 0.2861695885658264, 0.39998874068260193, 0.6666667461395264):
        p = F(F(p * z) + F(c))
    p = F(F(p * z) * s)
    p = F(p + F(s + s))
    return F((ZERO if x < 0 else x) + p)


def ordered_sum(terms: Sequence[np.float32]) -> np.float32:
    """Segments of 512: 32 lanes, a tree of adjacent pairs; then the segments in turn."""
    result = None
    for start in range(0, len(terms), 512):
        lanes = [ZERO] * 32
        for i, term in enumerate(terms[start : start + 512]):
            lanes[i % 32] = F(lanes[i % 32] + term)
        while len(lanes) > 1:
            lanes = [F(lanes[i] + lanes[i + 1]) for i in range(0, len(lanes), 2)]
        result = lanes[0] if result is None else F(result + lanes[0])
    assert result is not None
    return result


def dot(a: np.ndarray, b: np.ndarray) -> np.float32:
    """The ordered sum of products of two vectors."""
    return ordered_sum([F(x * y) for x, y in zip(a, b, strict=True)])


def float_linear(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """[R, K] times [N, K] transposed."""
    return np.array([[dot(row, w) for w in weight] for row in x], F)


def quantise(x: np.ndarray) -> tuple[list[int], list[np.float32]]:
    """Integers of one row and a scale for every 32 of them."""
    integers: list[int] = []
    scales: list[np.float32] = []
    for start in range(0, len(x), 32):
        group = x[start : start + 32]
        s = F(max(abs(v) for v in group) / F(127))
        scales.append(s)
        for v in group:
            q = 0 if s == 0 else int(np.rint(F(v / s)))
            integers.append(min(max(q, -127), 127))
    return integers, scales


def integer_dot(
    x: np.ndarray,
    codes: Sequence[int],
    multipliers: Sequence[int],
    scales: np.ndarray,
    minimum_multipliers: Sequence[int],
    minimum_scales: np.ndarray | None,
) -> np.float32:
    """One row of activations times one row of weights; multipliers are one an element."""
    q, s = quantise(x)
    result = None
    segment = ZERO
    for g in range(len(s)):
        elements = range(32 * g, 32 * g + 32)
        total = sum(multipliers[i] * codes[i] * q[i] for i in elements)
        term = F(F(F(total) * s[g]) * scales[g])
        if minimum_scales is not None:
            lower = sum(minimum_multipliers[i] * q[i] for i in elements)
            term = F(term - F(F(F(lower) * s[g]) * minimum_scales[g]))
        segment = F(segment + term)
        if g % 16 == 15 or g == len(s) - 1:
            result = segment if result is None else F(result + segment)
            segment = ZERO
    assert result is not None
    return result


def limbs(weights: np.ndarray) -> tuple[list[int], list[np.float32]]:
    """One row as integers of 16 bits, and a scale for every 32: the same one for 256 of them."""
    integers: list[int] = []
    scales: list[np.float32] = []
    for start in range(0, len(weights), 256):
        block = [float(w) for w in weights[start : start + 256]]
        largest = max(abs(w) for w in block)
        exponent = max(frexp(largest)[1] - 1 if largest else -127, -105)
        scale = 2.0 ** (exponent - 21)
        integers += [round(Fraction(w) / Fraction(256 * scale)) for w in block]
        scales += [F(scale)] * (len(block) // 32)
    return integers, scales


def limb_dot(x: np.ndarray, weights: np.ndarray) -> np.float32:
    """One row of activations times one row of float weights, both as two limbs."""
    q, s = quantise(x)
    w, scales = limbs(weights)
    result = None
    segment = ZERO
    for g in range(len(s)):
        upper = middle = lower = 0
        for i in range(32 * g, 32 * g + 32):
            high = (w[i] + 128) // 256
            low = w[i] - 256 * high
            left = 0
            if s[g] != 0:
                left = int(np.rint(F(F(F(x[i] / s[g]) - F(q[i])) * F(256))))
                left = min(max(left, -128), 127)
            upper += q[i] * high
            middle += q[i] * low + left * high
            lower += left * low
        whole = F(F(F(upper) * F(256)) + F(middle))
        whole = F(F(whole * F(256)) + F(lower))
        segment = F(segment + F(F(whole * s[g]) * scales[g]))
        if g % 16 == 15 or g == len(s) - 1:
            result = segment if result is None else F(result + segment)
            segment = ZERO
    assert result is not None
    return result


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """One vector: (x * (1 / sqrt(mean square + eps))) * weight."""
    mean = F(dot(x, x) / F(len(x)))
    factor = F(ONE / F(np.sqrt(F(mean + F(eps)))))
    return np.array([F(F(v * factor) * w) for v, w in zip(x, weight, strict=True)], F)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """The first 2 * len(cos) elements rotated in half-split pairs."""
    out = x.copy()
    half = len(cos)
    for i in range(half):
        a, b = x[i], x[half + i]
        out[i] = F(F(a * cos[i]) - F(b * sin[i]))
        out[half + i] = F(F(b * cos[i]) + F(a * sin[i]))
    return out


def block_sum(terms: Sequence[np.float32]) -> np.float32:
    """Cells in blocks of 64, in turn inside a block, then the blocks in turn."""
    result = None
    for start in range(0, len(terms), 64):
        part = ZERO
        for term in terms[start : start + 64]:
            part = F(part + term)
        result = part if result is None else F(result + part)
    assert result is not None
    return result


def attend(q: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: np.float32) -> np.ndarray:
    """One head of one row over its selected cells, [cells, K] and [cells, V]."""
    scores = [F(dot(q, key) * scale) for key in keys]
    highest = F(max(scores, default=F(-inf)))
    weights = [exp(F(score - highest)) for score in scores]
    total = block_sum(weights)
    return np.array(
        [
            F(block_sum([F(w * v) for w, v in zip(weights, column, strict=True)]) / total)
            for column in values.T
        ],
        F,
    )


def convolve(history: Sequence[np.ndarray | None], weight: np.ndarray) -> np.ndarray:
    """silu of the taps' sum, oldest first; `history` has an input a tap (None: before 0)."""
    out = np.empty(len(weight), F)
    for channel, taps in enumerate(weight):
        acc = ZERO
        for tap, x in zip(taps, history, strict=True):
            if x is not None:
                acc = F(acc + F(tap * x[channel]))
        out[channel] = silu(acc)
    return out


def unit(x: np.ndarray, scale: np.float32) -> np.ndarray:
    """x divided by its length, times `scale`."""
    factor = F(ONE / F(np.sqrt(F(dot(x, x) + F(1e-6)))))
    return np.array([F(F(v * factor) * scale) for v in x], F)


def delta_step(
    state: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    decay: np.float32,
    beta: np.float32,
) -> np.ndarray:
    """One token of one head: changes state [K, V], returns the output [V]."""
    out = np.empty(len(v), F)
    for n in range(len(v)):
        column = [F(s * decay) for s in state[:, n]]
        seen = ordered_sum([F(s * key) for s, key in zip(column, k, strict=True)])
        error = F(F(v[n] - seen) * beta)
        column = [F(s + F(key * error)) for s, key in zip(column, k, strict=True)]
        out[n] = ordered_sum([F(s * query) for s, query in zip(column, q, strict=True)])
        state[:, n] = column
    return out
