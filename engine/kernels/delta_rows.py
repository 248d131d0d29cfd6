"""What the gated delta rule reads of a row, and what becomes of what it writes.

Before: queries, keys and values after the convolution, queries and keys scaled to length; decay and
beta of every head. After: a head's values normed, gated, and quantised as an input of matrices. All
of it is a tile of rows at a time, beside each other in [M, C] tensors, C a power of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.dots import SHUFFLES, spread
from engine.kernels.inputs import store_groups
from engine.kernels.lanes import add_in_order, tree
from engine.kernels.scalar import exp, sigmoid, softplus

L2_EPS = tl.constexpr(1e-6)


# What thread 8 * group + (this thread's number in its eight) has.
FROM_EIGHTS = tl.constexpr(
    tuple(
        "{ .reg .b32 t; mov.u32 t, %laneid; and.b32 t, t, 7; "
        f"or.b32 t, t, {8 * group}; shfl.sync.idx.b32 $0, $1, t, 0x1f, 0xffffffff; }}"
        for group in range(4)
    )
)


@triton.jit
def square_sums(x, M: tl.constexpr, C: tl.constexpr, LEVELS: tl.constexpr, SHUFFLE: tl.constexpr):
    """The ordered sums of the squares of float32 [M, C], C = 32 * 2**LEVELS <= 512.

    [M, 1]; or [M, 32] with equal columns where SHUFFLE: a warp has a row of 128, thread t columns
    4t to 4t + 3, and threads exchange what they have.
    """
    squares = x * x
    if SHUFFLE:
        lanes = _exchanged(squares, FROM_EIGHTS, 0)
        for group in tl.static_range(1, 4):
            lanes = lanes + _exchanged(squares, FROM_EIGHTS, group)
        left, right = tl.split(tl.reshape(lanes, [M, 64, 2]))
        left, right = tl.split(tl.reshape(left + right, [M, 32, 2]))
        total = left + right
        for other in tl.static_range(3):
            total = total + _exchanged(total, SHUFFLES, other)
    else:
        squares = tl.reshape(squares, [M, 1 << LEVELS, 32])
        groups = tl.reshape(tl.permute(squares, (1, 0, 2)), [1 << LEVELS, M * 32])
        lanes = add_in_order(tl.zeros([M * 32], tl.float32), groups, M * 32, LEVELS)
        total = tree(tl.reshape(lanes, [M, 32]), M)[:, None]
    return total


@triton.jit
def _exchanged(x, ASSEMBLY: tl.constexpr, i: tl.constexpr):
    return tl.inline_asm_elementwise(
        ASSEMBLY[i], "=f,f", [x], dtype=tl.float32, is_pure=False, pack=1
    )


@triton.jit
def one_over_root(squares, M: tl.constexpr, SHUFFLE: tl.constexpr):
    """1 / sqrt of what `square_sums` gives or what is made of it, [M, C] or what broadcasts."""
    factor = tl.div_rn(tl.full(squares.shape, 1.0, tl.float32), tl.sqrt_rn(squares))
    return spread(factor, M, 32) if SHUFFLE else factor


@triton.jit
def to_length(
    x, scale, M: tl.constexpr, C: tl.constexpr, LEVELS: tl.constexpr, SHUFFLE: tl.constexpr
):  # fmt: skip
    """x / length * scale."""
    sums = square_sums(x, M, C, LEVELS, SHUFFLE)
    return (x * one_over_root(sums + L2_EPS, M, SHUFFLE)) * scale


@triton.jit
def forget(a, decay, bias):
    """exp(A * softplus(a + dt))."""
    return exp(decay * softplus(a + bias))


@triton.jit
def store_gates(GATES, a, b, row, head, decay, bias, live, H: tl.constexpr):
    """Decay and beta of heads of rows, from alpha and beta; all but the pointer broadcast."""
    tl.store(GATES + row * (2 * H) + head, forget(a, decay, bias), mask=live)
    tl.store(GATES + row * (2 * H) + H + head, sigmoid(b), mask=live)


@triton.jit
def finish(
    VALUES, CODES, INFO, x, active, weight, row, head, live, groups, eps,
    H: tl.constexpr, V: tl.constexpr, QUANTISE: tl.constexpr,
    M: tl.constexpr, C: tl.constexpr, LEVELS: tl.constexpr, SHUFFLE: tl.constexpr,
):  # fmt: skip
    """((x * factor) * weight) * activated gate of one head.

    x, active (the gate): [M, C]; row, live: [M].
    """
    at = tl.arange(0, C)[None, :]
    sums = square_sums(x, M, C, LEVELS, SHUFFLE)
    mean = tl.div_rn(sums, tl.full(sums.shape, V, tl.float32))
    y = ((x * one_over_root(mean + eps, M, SHUFFLE)) * weight) * active
    column = head * V + at
    tl.store(VALUES + row[:, None] * (H * V) + column, y, mask=live[:, None] & (at < V))
    if QUANTISE:
        g = tl.arange(0, 1 << LEVELS)[None, :]
        room = tl.zeros([M, 1 << LEVELS], tl.int32)
        group = tl.reshape(head * (V // 32) + g + room, [M << LEVELS])
        rows = tl.reshape(row.to(tl.int32)[:, None] + room, [M << LEVELS])
        inside = tl.reshape(live[:, None] & (g * 32 + room < V), [M << LEVELS])
        y = tl.reshape(y, [M << LEVELS, 32])
        store_groups(CODES, INFO, y, rows, group, groups, inside, M << LEVELS)
