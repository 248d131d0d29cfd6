"""RMS norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.reference.compiled import compiled
from engine.reference.lanes import LANES, dot


def rms_norm(x: torch.Tensor, weight: torch.Tensor, width: int, eps: float) -> torch.Tensor:
    """x / rms(x) * weight over runs of `width`, float32 [R, G * width].

    `weight` is float32 of [width] or [G * width]; the file has folded any "+1" into it.
    """
    out = torch.empty_like(x)
    normalise(x.numpy(), weight.numpy(), width, np.float32(eps), out.numpy())
    return out


def normed_input(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The RMS norm of whole rows, float32 [R, D], as an input of matrices."""
    return rms_norm(x, weight, x.shape[1], eps)


@compiled
def normalise(x: Any, weight: Any, width: int, eps: Any, out: Any) -> None:
    """As `rms_norm`, on arrays: y = (x * (1 / sqrt(mean square + eps))) * weight."""
    lanes = np.empty(LANES, np.float32)
    for r in range(x.shape[0]):
        for start in range(0, x.shape[1], width):
            part = x[r, start : start + width]
            mean = dot(part, part, lanes) / np.float32(width)
            factor = np.float32(1) / np.sqrt(mean + eps)
            offset = start % weight.size
            for i in range(width):
                out[r, start + i] = (part[i] * factor) * weight[offset + i]
