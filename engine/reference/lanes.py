"""The order of float sums: 32 lanes, a tree of adjacent pairs, segments of 512 in turn.

In a segment of 512 elements lane l (0..31) adds elements l, l + 32, l + 64, ... in that order,
from 0. The lanes are then added as a tree: lanes 0+1, 2+3, ..., again, down to one. The sums of the
segments are added in ascending order. Lanes that the last group does not reach have fewer terms.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import numpy as np

from engine.reference.compiled import compiled

LANES = 32
SEGMENT = 512


@compiled
def tree(lanes: Any) -> Any:
    """The sum of float32 [32] by adjacent pairs. Overwrites `lanes`."""
    width = 16
    while width > 0:
        for i in range(width):
            lanes[i] = lanes[2 * i] + lanes[2 * i + 1]
        width //= 2
    return lanes[0]


@compiled
def dot(a: Any, b: Any, lanes: Any) -> Any:
    """The ordered sum of a[i] * b[i], float32 [K]. `lanes` is scratch, float32 [32]."""
    total = np.float32(0)
    for start in range(0, a.size, SEGMENT):
        stop = min(start + SEGMENT, a.size)
        lanes[:] = np.float32(0)
        for group in range(start, stop, LANES):
            width = min(LANES, stop - group)
            x = a[group : group + width]
            y = b[group : group + width]
            for lane in range(width):
                lanes[lane] += x[lane] * y[lane]
        part = tree(lanes)
        total = part if start == 0 else total + part
    return total


@compiled
def total(a: Any, lanes: Any) -> Any:
    """The ordered sum of float32 [K]. `lanes` is scratch, float32 [32]."""
    result = np.float32(0)
    for start in range(0, a.size, SEGMENT):
        stop = min(start + SEGMENT, a.size)
        lanes[:] = np.float32(0)
        for i in range(start, stop):
            lanes[(i - start) % LANES] += a[i]
        part = tree(lanes)
        result = part if start == 0 else result + part
    return result


@compiled
def tree_columns(lanes: Any, out: Any) -> None:
    """As `tree`, for every column of float32 [32, N] at once: out[n]. Overwrites `lanes`."""
    width = 16
    while width > 0:
        for i in range(width):
            left = lanes[2 * i]
            right = lanes[2 * i + 1]
            target = lanes[i]
            for n in range(out.size):
                target[n] = left[n] + right[n]
        width //= 2
    first = lanes[0]
    for n in range(out.size):
        out[n] = first[n]
