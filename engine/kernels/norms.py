"""RMS norms: one program a run of `width` values.

Order: the mean square is the dot of `lanes.py`; then the lines of `engine/reference/norms.py`.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels.dependent import launch_options, wait
from engine.kernels.inputs import GROUP, SEGMENT, Input, room, store_groups
from engine.kernels.lanes import add_in_order, everywhere, tree

# Values of a run that one warp should have; a longer run gets more warps.
VALUES_A_WARP = 512


@triton.jit
def segment_dots(A, B, K: tl.constexpr, LEVELS: tl.constexpr):
    """Ordered sums of A[i] * B[i] of two float32 vectors in memory, float32 [2**LEVELS]: one for
    each segment of 512, 16 steps of 32 lanes. All segments take a step together."""
    segment = tl.arange(0, 1 << LEVELS)[:, None] * 512
    lane = tl.arange(0, 32)[None, :]
    STEPS: tl.constexpr = 16 if K >= 512 else (K + 31) // 32
    first = ()
    second = ()
    for step in tl.static_range(STEPS):
        at = segment + step * 32 + lane
        first = first + (tl.load(A + at, mask=at < K, other=0.0),)
        second = second + (tl.load(B + at, mask=at < K, other=0.0),)
    if STEPS > 2:
        # Or the assembler spreads loads over the sums, to need fewer registers: several waits for
        # memory instead of one.
        tl.debug_barrier()
    lanes = tl.zeros([1 << LEVELS, 32], tl.float32)
    for step in tl.static_range(STEPS):
        lanes = lanes + first[step] * second[step]
    return tree(lanes, 1 << LEVELS)


@triton.jit
def dot(A, B, K: tl.constexpr, LEVELS: tl.constexpr):
    """The ordered sum of A[i] * B[i] of two float32 vectors in memory, float32 [1]."""
    parts = tl.reshape(segment_dots(A, B, K, LEVELS), [1 << LEVELS, 1])
    return add_in_order(tl.zeros([1], tl.float32), parts, 1, LEVELS)


@triton.jit
def rms_factors(X, K: tl.constexpr, LEVELS: tl.constexpr, eps, T: tl.constexpr):
    """`rms_factor`, as often as T says: float32 [T]."""
    M: tl.constexpr = 1 << LEVELS
    at = tl.arange(0, M)[:, None] + tl.arange(0, T)[None, :] * 0
    parts = everywhere(segment_dots(X, X, K, LEVELS), at, M, T)
    total = tl.zeros([T], tl.float32)
    for c in tl.static_range((K + 511) // 512):
        total = total + parts[c]
    mean = tl.div_rn(total, tl.full([T], K, tl.float32))
    return tl.div_rn(tl.full([T], 1.0, tl.float32), tl.sqrt_rn(mean + eps))


@triton.jit
def rms_factor(X, K: tl.constexpr, LEVELS: tl.constexpr, eps):
    """1 / sqrt(mean square + eps) of float32 [K] in memory, float32 [1]."""
    mean = tl.div_rn(dot(X, X, K, LEVELS), tl.full([1], K, tl.float32))
    return tl.div_rn(tl.full([1], 1.0, tl.float32), tl.sqrt_rn(mean + eps))


@triton.jit
def rms_norm_kernel(
    X, WEIGHT, OUT, eps, K: tl.constexpr, PERIOD: tl.constexpr, LEVELS: tl.constexpr,
    B: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (runs a row, rows). PERIOD: runs that the weight spans. B: numbers at a time."""
    run = tl.program_id(0)
    start = (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + run) * K
    weights = ()
    for first in tl.static_range(0, K, B):
        at = first + tl.arange(0, B)
        weights = weights + (tl.load(WEIGHT + run % PERIOD * K + at, mask=at < K, other=0.0),)
    wait(PDL)
    factor = rms_factor(X + start, K, LEVELS, eps)
    for first in tl.static_range(0, K, B):
        at = first + tl.arange(0, B)
        x = tl.load(X + start + at, mask=at < K, other=0.0)
        tl.store(OUT + start + at, (x * factor) * weights[first // B], mask=at < K)


@triton.jit(do_not_specialize=["groups"])
def normed_input_kernel(
    X, WEIGHT, OUT, CODES, INFO, eps, groups, K: tl.constexpr, LEVELS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """A row's norm as an input of matrices. Grid (rows,)."""
    M: tl.constexpr = 16 << LEVELS
    group = tl.arange(0, M)
    at = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    weight = tl.load(WEIGHT + at, mask=at < K, other=0.0)
    wait(PDL)
    row = tl.program_id(0)
    start = row.to(tl.int64) * K
    factor = rms_factor(X + start, K, LEVELS, eps)
    x = tl.load(X + start + at, mask=at < K, other=0.0)
    x = (x * factor[:, None]) * weight
    tl.store(OUT + start + at, x, mask=at < K)
    store_groups(CODES, INFO, x, row, group, groups, group < groups, M)


def segment_levels(width: int) -> int:
    """How often the segments of 512 of a dot must be halved until one is left."""
    return ((width + 511) // 512 - 1).bit_length()


def warps_for(width: int) -> int:
    """Warps of a program that reads a run of `width` values."""
    return min(4, 1 << (max(width // VALUES_A_WARP, 1).bit_length() - 1))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, width: int, eps: float) -> torch.Tensor:
    """x / rms(x) * weight over runs of `width`, float32 [R, G * width].

    `weight` is float32 of [width] or [G * width].
    """
    x = x.contiguous()
    out = torch.empty_like(x)
    rows = x.shape[0]
    runs = x.numel() // (rows * width) if rows else 0
    if runs:
        rms_norm_kernel[(runs, rows)](
            x, weight, out, eps, K=width, PERIOD=weight.numel() // width,
            LEVELS=segment_levels(width), B=min(triton.next_power_of_2(width), 1024),
            num_warps=warps_for(width), **launch_options(x),
        )  # fmt: skip
    return out


def normed_input(x: torch.Tensor, weight: torch.Tensor, eps: float) -> Input:
    """The norm of whole rows, float32 [R, D], as an input of matrices."""
    x = x.contiguous()
    rows, width = x.shape
    out = room(rows, width, x.device)
    if rows:
        groups = out.codes.shape[1]
        assert groups * GROUP < width + SEGMENT
        normed_input_kernel[(rows,)](
            x, weight, out.values, out.codes, out.info, eps, groups, K=width,
            LEVELS=segment_levels(width), num_warps=8, **launch_options(x),
        )  # fmt: skip
    return out
