"""Causal depthwise convolution over a conversation, with a ring of past inputs a slot.

Order: a row and channel starts from 0 and adds its taps from the oldest on, as
`engine/reference/convolution.py` does; a tap before the start of the conversation adds nothing.

A program computes 16 rows of one span. Only the first of a span reads the ring (its other rows find
their past in the window), and that program also writes the ring, after it has read: one launch, and
no program waits for another.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels.scalar import silu
from engine.kernels.spans import capacity, share_of, shares
from engine.rows import Rows

# Rows of a program, at least; its channels; its warps.
ROWS, CHANNELS, WARPS = 16, 128, 4


def causal_convolution(
    x: torch.Tensor, ring: torch.Tensor, weight: torch.Tensor, dilation: int, rows: Rows
) -> torch.Tensor:
    """silu(sum over taps of weight * input), float32 [R, channels].

    As `engine.reference.convolution.causal_convolution`; rows of no span are not written.
    """
    x = x.contiguous()
    out = torch.empty_like(x)
    channels, taps = weight.shape
    tile = max(ROWS, triton.next_power_of_2((taps - 1) * dilation))
    grid = (shares(rows, x.shape[0], tile), triton.cdiv(channels, CHANNELS))
    if rows.spans.shape[0]:
        convolve[grid](
            x, ring, weight, rows.spans, out, rows.spans.shape[0],
            TAPS=taps, DILATION=dilation, LENGTH=ring.shape[1], N=channels,
            KEPT=triton.next_power_of_2(ring.shape[1]), CAPACITY=capacity(rows),
            R=tile, B=CHANNELS, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["spans"])
def convolve(
    X, RING, WEIGHT, SPANS, OUT, spans,
    TAPS: tl.constexpr, DILATION: tl.constexpr, LENGTH: tl.constexpr, N: tl.constexpr,
    KEPT: tl.constexpr, CAPACITY: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Grid (shares of R rows, blocks of B channels). R is at least the reach of the taps."""
    span, tile = share_of(SPANS, spans, tl.program_id(0), R, CAPACITY)
    if span < spans:
        slot = tl.load(SPANS + span * 5).to(tl.int64)
        first = tl.load(SPANS + span * 5 + 1).to(tl.int64)
        count = tl.load(SPANS + span * 5 + 2)
        start = tl.load(SPANS + span * 5 + 3)
        c = (tl.program_id(1) * B + tl.arange(0, B))[None, :]
        i = (tile * R + tl.arange(0, R))[:, None]
        total = tl.zeros([R, B], tl.float32)
        for tap in tl.static_range(TAPS):
            back = (TAPS - 1 - tap) * DILATION
            w = tl.load(WEIGHT + c * TAPS + tap, mask=c < N, other=0.0)
            near = (i < count) & (i >= back) & (c < N)
            far = (i < count) & (i < back) & (start + i >= back) & (c < N)
            here = tl.load(X + (first + i - back) * N + c, mask=near, other=0.0)
            cell = slot * LENGTH + (start + i - back) % LENGTH
            past = tl.load(RING + cell * N + c, mask=far, other=0.0)
            total = tl.where(near | far, total + w * tl.where(near, here, past), total)
        tl.store(OUT + (first + i) * N + c, silu(total), mask=(i < count) & (c < N))
        if tile == 0:
            tl.debug_barrier()  # the ring is read, by every thread
            last = (count - LENGTH + tl.arange(0, KEPT))[:, None]
            keep = (last >= 0) & (last < count) & (c < N)
            value = tl.load(X + (first + last) * N + c, mask=keep, other=0.0)
            kept_cell = slot * LENGTH + (start + last) % LENGTH
            tl.store(RING + kept_cell * N + c, value, mask=keep)
