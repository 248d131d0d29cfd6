"""Hyper-connections: C residual streams, read as one input and written with one weight a stream.

Read: xn = grouped RMS norm of the streams; mix = sigmoid(W_up . silu((W_down . xn) / C));
input = mean over the streams of mix * xn. Write: stream_c += 2 sigmoid((W_inject . xn)_c / C) * y.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.reference.compiled import compiled
from engine.reference.linear import linear, product
from engine.reference.matrix import ONLY, Matrix
from engine.reference.norms import normalise
from engine.reference.scalar import sigmoid, silu


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
    x = np.empty((rows, width), np.float32)
    weights = np.empty((rows, 0 if inject is None else inject.rows), np.float32)
    # Without an inject matrix the outputs have no columns, and any matrix serves as its stand-in.
    read(
        streams.view(rows, count * width).numpy(),
        norm.numpy(),
        down,
        up,
        down if inject is None else inject,
        np.float32(eps),
        x,
        weights,
    )
    return torch.from_numpy(x), None if inject is None else torch.from_numpy(weights)


def project_into(
    residual: torch.Tensor, shares: torch.Tensor | None, x: torch.Tensor, weight: Matrix
) -> None:
    """Adds y = W.x of every row to the residual, in place: see `add_into`."""
    add_into(residual, shares, linear(x, weight))


def add_into(residual: torch.Tensor, shares: torch.Tensor | None, y: torch.Tensor) -> None:
    """residual[r, c] += shares[r, c] * y[r] for streams [R, C, D], or [R, D] += y without shares.

    y: float32 [R, D]."""
    if shares is None:
        residual += y
    else:
        hyper_write(residual, shares, y)


def hyper_write(streams: torch.Tensor, weights: torch.Tensor, y: torch.Tensor) -> None:
    """streams[r, c] += weights[r, c] * y[r], in place. float32 [R, C, D], [R, C], [R, D]."""
    add_weighted(streams.numpy(), weights.numpy(), y.numpy())


@compiled
def read(
    streams: Any, norm: Any, down: Any, up: Any, inject: Any, eps: Any, out: Any, weights: Any
) -> None:
    """As `hyper_read`, on arrays; streams: float32 [R, C * D]."""
    width = out.shape[1]
    count = streams.shape[1] // width
    divisor = np.float32(count)
    normed = np.empty(streams.shape, np.float32)
    normalise(streams, norm, width, eps, normed)
    low = np.empty((streams.shape[0], down.rows), np.float32)
    product(normed, down, ONLY, low)
    for r in range(low.shape[0]):
        row = low[r]
        for i in range(row.size):
            row[i] = silu(row[i] / divisor)
    mix = np.empty(streams.shape, np.float32)
    product(low, up, ONLY, mix)
    mean_of_mixed(mix, normed, count, out)
    if weights.shape[1]:
        product(normed, inject, ONLY, weights)
        for r in range(weights.shape[0]):
            row = weights[r]
            for i in range(row.size):
                row[i] = np.float32(2) * sigmoid(row[i] / divisor)


@compiled
def mean_of_mixed(mix: Any, normed: Any, count: int, out: Any) -> None:
    """out[r, d] = mean over the streams, in ascending order, of sigmoid(mix) * normed."""
    width = out.shape[1]
    divisor = np.float32(count)
    for r in range(out.shape[0]):
        target = out[r]
        for c in range(count):
            m = mix[r, c * width : (c + 1) * width]
            x = normed[r, c * width : (c + 1) * width]
            for d in range(width):
                term = sigmoid(m[d]) * x[d]
                target[d] = term if c == 0 else target[d] + term
        for d in range(width):
            target[d] = target[d] / divisor


@compiled
def add_weighted(streams: Any, weights: Any, y: Any) -> None:
    """As `hyper_write`, on arrays."""
    for r in range(streams.shape[0]):
        x = y[r]
        for c in range(streams.shape[1]):
            stream = streams[r, c]
            w = weights[r, c]
            for d in range(x.size):
                stream[d] += w * x[d]
