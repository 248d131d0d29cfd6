"""Hyper-connections: C residual streams, read as one input and written with one weight a stream.

Read: xn = grouped RMS norm of the streams; mix = sigmoid(W_up . silu((W_down . xn) / C));
input = mean over the streams of mix * xn. Write: stream_c += 2 sigmoid((W_inject . xn)_c / C) * y.
Order: the matrices' own; the mean adds the streams in ascending order and divides once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels.linear import linear
from engine.kernels.matrix import Matrix
from engine.kernels.norms import rms_norm
from engine.kernels.scalar import sigmoid, silu

# Values a program.
BLOCK = 256


@triton.jit
def low_kernel(LOW, n, COUNT: tl.constexpr, B: tl.constexpr):
    """LOW = silu(LOW / COUNT) in place, n numbers."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    x = tl.load(LOW + at, mask=at < n, other=0.0)
    tl.store(LOW + at, silu(tl.div_rn(x, tl.full([B], COUNT, tl.float32))), mask=at < n)


@triton.jit
def shares_kernel(WEIGHTS, n, COUNT: tl.constexpr, B: tl.constexpr):
    """WEIGHTS = 2 sigmoid(WEIGHTS / COUNT) in place, n numbers."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    x = tl.load(WEIGHTS + at, mask=at < n, other=0.0)
    x = 2.0 * sigmoid(tl.div_rn(x, tl.full([B], COUNT, tl.float32)))
    tl.store(WEIGHTS + at, x, mask=at < n)


@triton.jit
def mean_kernel(MIX, NORMED, OUT, D: tl.constexpr, COUNT: tl.constexpr, B: tl.constexpr):
    """OUT[r, d] = mean over the streams of sigmoid(MIX) * NORMED. Grid (D / B, rows)."""
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for c in tl.static_range(COUNT):
        cell = (row * COUNT + c) * D + at
        mix = sigmoid(tl.load(MIX + cell, mask=at < D, other=0.0))
        term = mix * tl.load(NORMED + cell, mask=at < D, other=0.0)
        # No zero stands before the first term, which may be -0.
        total = term if c == 0 else total + term
    mean = tl.div_rn(total, tl.full([B], COUNT, tl.float32))
    tl.store(OUT + row * D + at, mean, mask=at < D)


@triton.jit
def write_kernel(STREAMS, WEIGHTS, Y, D: tl.constexpr, COUNT: tl.constexpr, B: tl.constexpr):
    """STREAMS[r, c, d] += WEIGHTS[r, c] * Y[r, d]. Grid (D / B, rows)."""
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * B + tl.arange(0, B)
    y = tl.load(Y + row * D + at, mask=at < D, other=0.0)
    for c in tl.static_range(COUNT):
        weight = tl.load(WEIGHTS + row * COUNT + c)
        stream = STREAMS + (row * COUNT + c) * D + at
        x = tl.load(stream, mask=at < D, other=0.0)
        tl.store(stream, x + weight * y, mask=at < D)


def hyper_read(
    streams: torch.Tensor,
    norm: torch.Tensor,
    down: Matrix,
    up: Matrix,
    inject: Matrix | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The block input, float32 [R, D], and the streams' write weights, [R, C] (None: no inject).

    `streams` is float32 [R, C, D].
    """
    rows, count, width = streams.shape
    normed = rms_norm(streams.reshape(rows, count * width), norm, width, eps)
    low = linear(normed, down)
    launch = {"COUNT": count, "B": BLOCK, "num_warps": 4, "enable_fp_fusion": False}
    if low.numel():
        low_kernel[(triton.cdiv(low.numel(), BLOCK),)](low, low.numel(), **launch)
    mix = linear(low, up)
    x = torch.empty(rows, width, device=streams.device)
    if rows:
        mean_kernel[(triton.cdiv(width, BLOCK), rows)](mix, normed, x, D=width, **launch)
    if inject is None:
        return x, None
    weights = linear(normed, inject)
    if rows:
        n = weights.numel()
        shares_kernel[(triton.cdiv(n, BLOCK),)](weights, n, **launch)
    return x, weights


def hyper_write(streams: torch.Tensor, weights: torch.Tensor, y: torch.Tensor) -> None:
    """streams[r, c] += weights[r, c] * y[r], in place. float32 [R, C, D], [R, C], [R, D]."""
    rows, count, width = streams.shape
    assert streams.is_contiguous()
    if rows:
        write_kernel[(triton.cdiv(width, BLOCK), rows)](
            streams, weights.contiguous(), y.contiguous(), D=width, COUNT=count, B=BLOCK,
            num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
