"""Causal depthwise convolution over a conversation, with a ring of past inputs a slot.

Order: a row and channel starts from 0 and adds its taps from the oldest on, as
`engine/reference/convolution.py` does; a tap before the start of the conversation adds nothing.

In short windows a program has all rows of a span, some at a time: cells of the ring that its rows
overwrite are read by none that follow. In long ones it has 16 rows; only the first program of a
span reads the ring (its other rows find their past in the window), and that one also writes the
ring, after it has read. One launch, and no program waits for another.
"""

# Tuples grow in loops that Triton unrolls.
# mypy: disable-error-code="assignment"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels.dependent import launch_options, wait
from engine.kernels.scalar import silu
from engine.kernels.spans import capacity, line_of, share_of, shares
from engine.rows import Rows

# Windows of more rows are prompts: their rows are spread over programs.
MOST_ROWS = 64
# Rows at a time in short windows and in long ones, there at least; channels and warps of a program.
FEW, ROWS, CHANNELS, WARPS = 4, 16, 128, 4


def convolve_into(
    residual: torch.Tensor,
    value: torch.Tensor,
    x: torch.Tensor,
    ring: torch.Tensor,
    weight: torch.Tensor,
    dilation: int,
    rows: Rows,
) -> None:
    """residual += value + silu(sum over taps of weight * x), float32 [R, channels], in place.

    As `engine.reference.convolution.convolve_into`; rows of no span are not written.
    """
    channels, taps = weight.shape
    spans, long = rows.spans.shape[0], x.shape[0] > MOST_ROWS
    tile = max(ROWS, triton.next_power_of_2((taps - 1) * dilation)) if long else FEW
    parts = shares(rows, x.shape[0], tile) if long else spans
    if spans:
        convolve[parts, triton.cdiv(channels, CHANNELS)](
            x, ring, weight, rows.spans, value, residual, spans,
            TAPS=taps, DILATION=dilation, LENGTH=ring.shape[1], N=channels,
            KEPT=triton.next_power_of_2(ring.shape[1]), CAPACITY=capacity(rows) if long else 16,
            SHARED=long, R=tile, B=CHANNELS, num_warps=WARPS, **launch_options(x),
        )  # fmt: skip


@triton.jit
def weights_of(WEIGHT, c, live, TAPS: tl.constexpr):
    """The taps of channels c, oldest first: a tuple of tensors like c."""
    taps = ()
    for tap in tl.static_range(TAPS):
        taps += (tl.load(WEIGHT + c * TAPS + tap, mask=live, other=0.0),)
    return taps


@triton.jit
def convolved(
    X, PAST, taps, i, c, live, x_row, start, length, channels,
    TAPS: tl.constexpr, DILATION: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Rows i of a span, channels c: the activated sums and the inputs, float32 [R, B].

    X, PAST: where the span's first row and the slot's ring begin. i: [R, 1]; c, live: [R, B] or
    what broadcasts to it.
    """
    inputs = ()  # all loads come before the first sum
    for tap in tl.static_range(TAPS):
        back = (TAPS - 1 - tap) * DILATION
        at = X + ((i - back) * x_row + c)
        if tap < TAPS - 1:
            past = PAST + ((start + i - back) % length * channels + c)
            at = tl.where(i >= back, at, past)
        inputs += (tl.load(at, mask=live & (start + i >= back), other=0.0),)
    total = tl.zeros([R, B], tl.float32)
    for tap in tl.static_range(TAPS):
        back = (TAPS - 1 - tap) * DILATION
        total = tl.where(start + i >= back, total + taps[tap] * inputs[tap], total)
    return silu(total), inputs[TAPS - 1]


@triton.jit
def keep_last(X, PAST, c, live, x_row, count, start, length, channels, KEPT: tl.constexpr):
    """The last inputs of a span into its ring of at most KEPT cells. c, live: [1, B]."""
    last = (count - length + tl.arange(0, KEPT))[:, None]
    keep = (last >= 0) & (last < count) & live
    value = tl.load(X + last * x_row + c, mask=keep, other=0.0)
    tl.store(PAST + (start + last) % length * channels + c, value, mask=keep)


@triton.jit(do_not_specialize=["spans"], do_not_specialize_on_alignment=["SPANS"])
def convolve(
    X, RING, WEIGHT, SPANS, VALUE, RESIDUAL, spans,
    TAPS: tl.constexpr, DILATION: tl.constexpr, LENGTH: tl.constexpr, N: tl.constexpr,
    KEPT: tl.constexpr, CAPACITY: tl.constexpr, SHARED: tl.constexpr, R: tl.constexpr,
    B: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (spans, blocks of B channels). SHARED: the first axis is shares of R rows, R at least
    the reach of the taps."""
    c = (tl.program_id(1) * B + tl.arange(0, B))[None, :]
    # In one tile, a row's warp has its weights; more rows a warp share them.
    each = c if SHARED else c + tl.zeros([R, 1], tl.int32)
    taps = weights_of(WEIGHT, each, each < N, TAPS)
    span, tile = tl.program_id(0), 0
    wait(PDL)
    if SHARED:
        span, tile = share_of(SPANS, spans, tl.program_id(0), R, CAPACITY)
    if span < spans:
        slot, first, count, start, _ = line_of(SPANS, span)
        x_at = X + first * N
        past = RING + slot * LENGTH * N
        for t in range(tile, tile + 1 if SHARED else (count + R - 1) // R):
            i = (t * R + tl.arange(0, R))[:, None]
            live = (i < count) & (c < N)
            total, input = convolved(
                x_at, past, taps, i, c, live, N, start, LENGTH, N, TAPS, DILATION, R, B
            )
            at = first * N + i * N + c
            value = tl.load(VALUE + at, mask=live, other=0.0)
            residual = tl.load(RESIDUAL + at, mask=live, other=0.0)
            tl.store(RESIDUAL + at, residual + (value + total), mask=live)
            if not SHARED:
                tl.debug_barrier()  # the ring is read, by every thread
                cell = (start + i) % LENGTH * N + c
                tl.store(past + cell, input, mask=live & (i >= count - LENGTH))
        if SHARED and tile == 0:
            tl.debug_barrier()  # the ring is read, by every thread
            keep_last(x_at, past, c, c < N, N, count, start, LENGTH, N, KEPT)
