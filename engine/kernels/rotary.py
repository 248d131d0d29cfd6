"""Rotary position embedding: half-split ("NEOX") rotation of the first `rotary` dims of a head.

Order: one product, one product, one difference or sum a value, as in `engine/reference/rotary.py`.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from engine.kernels.dots import dot, spread


def rotary_table(
    positions: int, rotary: int, freq_base: float, *, device: torch.device | str = "cuda"
) -> torch.Tensor:
    """cos and sin of every position and frequency, float32 [positions, 2, rotary / 2].

    Made on the host in float64 and rounded once, so that every device rotates by the same numbers.
    """
    exponents = np.arange(0, rotary, 2, dtype=np.float64) / max(rotary, 1)
    angles = np.arange(positions, dtype=np.float64)[:, None] / freq_base**exponents
    table = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return torch.from_numpy(table).to(device)


@triton.jit
def head_constants(
    WEIGHT, TABLE, position, K: tl.constexpr, HALF: tl.constexpr, M: tl.constexpr
):  # fmt: skip
    """What `normed` needs beside the heads, a tuple of [M, 32]: weights of every 32 values; then
    of those that rotate the weights of their partners, cos and sin."""
    lane = tl.arange(0, 32)[None, :] + tl.arange(0, M)[:, None] * 0
    weights = ()
    turns = ()
    for step in tl.static_range((K + 31) // 32):
        at = step * 32 + lane
        weights = weights + (tl.load(WEIGHT + at, mask=at < K, other=0.0),)
        if step * 32 < 2 * HALF:
            partner = tl.where(at < HALF, at + HALF, at - HALF)
            angle = TABLE + position.to(tl.int64) * (2 * HALF) + at % HALF
            turns = turns + (
                tl.load(WEIGHT + partner, mask=at < 2 * HALF, other=0.0),
                tl.load(angle, mask=at < 2 * HALF, other=1.0),
                tl.load(angle + HALF, mask=at < 2 * HALF, other=0.0),
            )
    return weights + turns


@triton.jit
def normed(
    x, X, constants, eps, K: tl.constexpr, HALF: tl.constexpr, M: tl.constexpr,
    SHUFFLE: tl.constexpr,
):  # fmt: skip
    """RMS norm and rotation of M heads: tuples of [M, 32], zeros from K on.

    X: pointers [M, 1] to the same values in memory, which are read where the halves that rotate are
    no whole steps of 32.
    """
    STEPS: tl.constexpr = (K + 31) // 32
    lane = tl.arange(0, 32)[None, :] + tl.arange(0, M)[:, None] * 0
    # Where K is a power of two its inverse is exact: the product rounds as the quotient does.
    mean = dot(x, x, K, M, SHUFFLE)
    mean = mean * (1.0 / K) if K & (K - 1) == 0 else tl.div_rn(mean, tl.full([M, 8], K, tl.float32))
    factor = tl.div_rn(tl.full([M, 8], 1.0, tl.float32), tl.sqrt_rn(mean + eps))
    factor = spread(factor, M, 8)
    heads = ()
    for step in tl.static_range(STEPS):
        at = step * 32 + lane
        head = (x[step] * factor) * constants[step]
        if step * 32 < 2 * HALF:
            if HALF % 32 != 0:
                partner = tl.where(at < HALF, at + HALF, at - HALF)
                y = tl.load(X + partner, mask=at < 2 * HALF, other=0.0)
            elif step * 32 < HALF:
                y = x[step + HALF // 32]
            else:
                y = x[step - HALF // 32]
            one = head * constants[STEPS + 3 * step + 1]
            other = (y * factor) * constants[STEPS + 3 * step]
            other = other * constants[STEPS + 3 * step + 2]
            head = tl.where(at < 2 * HALF, tl.where(at < HALF, one - other, one + other), head)
        heads = heads + (head,)
    return heads
