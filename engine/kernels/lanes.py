"""The order of float sums on a device: see `engine/reference/lanes.py`.

Nothing here asks a compiler for a sum: every addition is written, between tensors that `tl.split`
takes apart.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tree(lanes, M: tl.constexpr):
    """Adds adjacent pairs of the last axis until one is left: float32 [..., 32], M * 32 numbers in
    all, -> [M]."""
    a = tl.reshape(lanes, [M, 32])
    for i in tl.static_range(5):
        left, right = tl.split(tl.reshape(a, [M, 16 >> i, 2]))
        a = left + right
    return tl.reshape(a, [M])


@triton.jit
def apart(a, M: tl.constexpr, LEVELS: tl.constexpr):
    """The 2**LEVELS columns of [M, 2**LEVELS], a tuple of [M]; column c stands at the number whose
    LEVELS bits are those of c, lowest first."""
    parts = (a,)
    for level in tl.static_range(LEVELS):
        halves = ()
        for j in tl.static_range(1 << level):
            even, odd = tl.split(tl.reshape(parts[j], [M, (1 << LEVELS) >> (level + 1), 2]))
            halves = halves + (even, odd)
        parts = halves
    return parts


@triton.jit
def add_in_order(total, a, M: tl.constexpr, LEVELS: tl.constexpr):
    """total + a[0] + a[1] + ..., one after the other. total: [M], a: [2**LEVELS, M]."""
    if LEVELS == 0:
        total = total + tl.reshape(a, [M])
    else:
        parts = apart(tl.trans(a), M, LEVELS)
        for c in tl.static_range(1 << LEVELS):
            # the bits of c in reverse
            total = total + tl.reshape(
                parts[
                    ((c & 1) << 4 | (c & 2) << 2 | (c & 4) | (c & 8) >> 2 | (c & 16) >> 4)
                    >> (5 - LEVELS)
                ],
                [M],
            )
    return total
