"""Rotary position embedding: half-split ("NEOX") rotation of the first `rotary` dims of a head.

Text positions are equal on all axes of the interleaved multi-axis form, which leaves plain RoPE.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.reference.compiled import compiled
from engine.reference.matrix import Array
from engine.reference.norms import normalise


def rotary_table(positions: int, rotary: int, freq_base: float) -> torch.Tensor:
    """cos and sin of every position and frequency, float32 [positions, 2, rotary / 2].

    Made on the host in float64 and rounded once, so that every device rotates by the same numbers.
    """
    exponents = np.arange(0, rotary, 2, dtype=np.float64) / max(rotary, 1)
    angles = np.arange(positions, dtype=np.float64)[:, None] / freq_base**exponents
    return torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))


@compiled
def rotate(x: Any, table: Any) -> None:
    """Rotates one head in place. x: float32 [K]; table: float32 [2, rotary / 2] of its position."""
    half = table.shape[1]
    for i in range(half):
        a, b = x[i], x[half + i]
        x[i] = a * table[0, i] - b * table[1, i]
        x[half + i] = b * table[0, i] + a * table[1, i]


@compiled
def rotate_heads(x: Any, positions: Any, table: Any) -> None:
    """Rotates every head of float32 [R, H, K] in place, each row by its position."""
    for r in range(x.shape[0]):
        for h in range(x.shape[1]):
            rotate(x[r, h], table[positions[r]])


def normed_heads(
    x: Array, weight: torch.Tensor, eps: float, positions: torch.Tensor, table: torch.Tensor
) -> Array:
    """RMS norm of each head of float32 [R, H, K], then its rotation. A new array."""
    out = np.empty(x.shape, np.float32)
    width = x.shape[2]
    flat = np.ascontiguousarray(x).reshape(x.shape[0], -1)
    normalise(flat, weight.numpy(), width, np.float32(eps), out.reshape(flat.shape))
    rotate_heads(out, positions.numpy(), table.numpy())
    return out
