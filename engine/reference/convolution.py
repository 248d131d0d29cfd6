"""Causal depthwise convolution over a conversation, with a ring of past inputs a slot."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.reference.compiled import compiled
from engine.reference.scalar import silu
from engine.rows import Rows


def causal_convolution(
    x: torch.Tensor, ring: torch.Tensor, weight: torch.Tensor, dilation: int, rows: Rows
) -> torch.Tensor:
    """silu(sum over taps of weight * input), float32 [R, channels].

    x: float32 [R, channels]; weight: float32 [channels, K], tap K-1 meets the current token,
    tap K-1-i the input `i * dilation` tokens before (0 before the start). ring: float32
    [S, L, channels], inputs by position modulo L; L is at least (K-1) * dilation plus the most
    draft rows of a window, so a row that is dropped later has overwritten nothing still read.
    """
    out = torch.empty_like(x)
    convolve(x.numpy(), ring.numpy(), weight.numpy(), dilation, rows.spans.numpy(), out.numpy())
    return out


def convolve_into(
    residual: torch.Tensor,
    value: torch.Tensor,
    x: torch.Tensor,
    ring: torch.Tensor,
    weight: torch.Tensor,
    dilation: int,
    rows: Rows,
) -> None:
    """residual += value + `causal_convolution`, all float32 [R, channels], in place."""
    residual += value + causal_convolution(x, ring, weight, dilation, rows)


@compiled
def convolve(x: Any, ring: Any, weight: Any, dilation: int, spans: Any, out: Any) -> None:
    """As `causal_convolution`, on arrays; taps are added from the oldest on."""
    channels, taps = weight.shape
    length = ring.shape[1]
    for s in range(spans.shape[0]):
        slot, first, count, start = spans[s, 0], spans[s, 1], spans[s, 2], spans[s, 3]
        for i in range(count):
            target = out[first + i]
            target[:] = np.float32(0)
            for tap in range(taps):
                back = (taps - 1 - tap) * dilation
                if back > start + i:
                    continue
                source = (
                    x[first + i - back] if back <= i else ring[slot, (start + i - back) % length]
                )
                for c in range(channels):
                    target[c] += weight[c, tap] * source[c]
            for c in range(channels):
                target[c] = silu(target[c])
        for i in range(max(0, count - length), count):
            ring[slot, (start + i) % length] = x[first + i]
