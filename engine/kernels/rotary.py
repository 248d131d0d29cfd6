"""Rotary position embedding: half-split ("NEOX") rotation of the first `rotary` dims of a head.

Order: one product, one product, one difference or sum a value, as in `engine/reference/rotary.py`.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from engine.kernels.norms import rms_factor, segment_levels


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
def turned(x, y, TABLE, position, at, HALF: tl.constexpr):
    """x rotated by its position; y: x with the halves of its first 2 * HALF values exchanged."""
    rotates = at < 2 * HALF
    angle = TABLE + position.to(tl.int64) * (2 * HALF) + at % HALF
    c = tl.load(angle, mask=rotates, other=1.0)
    s = tl.load(angle + HALF, mask=rotates, other=0.0)
    one, other = x * c, y * s
    return tl.where(rotates, tl.where(at < HALF, one - other, one + other), x)


@triton.jit
def normed_head(
    X, WEIGHT, TABLE, position, eps, K: tl.constexpr, HALF: tl.constexpr, LEVELS: tl.constexpr,
    B: tl.constexpr,
):  # fmt: skip
    """RMS norm and rotation of one head, float32 [K] in memory -> [B], zeros from K on."""
    at = tl.arange(0, B)
    factor = rms_factor(X, K, LEVELS, eps)
    x = tl.load(X + at, mask=at < K, other=0.0)
    w = tl.load(WEIGHT + at, mask=at < K, other=0.0)
    head = (x * factor) * w
    if HALF > 0:
        partner = tl.where(at < HALF, at + HALF, at - HALF)
        y = tl.load(X + partner, mask=at < 2 * HALF, other=0.0)
        w = tl.load(WEIGHT + partner, mask=at < 2 * HALF, other=0.0)
        head = turned(head, (y * factor) * w, TABLE, position, at, HALF)
    return head


@triton.jit(
    do_not_specialize=["row_stride", "head_stride"],
    do_not_specialize_on_alignment=["POSITIONS"],
)
def normed_heads_kernel(
    X, WEIGHT, TABLE, POSITIONS, OUT, eps, row_stride, head_stride, K: tl.constexpr,
    HALF: tl.constexpr, LEVELS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Grid (heads, rows)."""
    head = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    x = normed_head(
        X + row * row_stride + head * head_stride, WEIGHT, TABLE, tl.load(POSITIONS + row), eps,
        K, HALF, LEVELS, B,
    )  # fmt: skip
    at = tl.arange(0, B)
    tl.store(OUT + (row * tl.num_programs(0) + head) * K + at, x, mask=at < K)


def normed_heads(
    x: torch.Tensor, weight: torch.Tensor, eps: float, positions: torch.Tensor, table: torch.Tensor
) -> torch.Tensor:
    """RMS norm of each head of float32 [R, H, K], then its rotation. A new tensor."""
    rows, heads, width = x.shape
    assert x.stride(2) == 1
    out = torch.empty(x.shape, device=x.device)
    if rows:
        normed_heads_kernel[(heads, rows)](
            x, weight, table, positions, out, eps, x.stride(0), x.stride(1), K=width,
            HALF=table.shape[2], LEVELS=segment_levels(width), B=triton.next_power_of_2(width),
            num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    return out
