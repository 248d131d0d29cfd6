"""Hyper-connections: C residual streams, read as one input and written with one weight a stream.

Read: xn = grouped RMS norm of the streams; mix = sigmoid(W_up . silu((W_down . xn) / C));
input = mean over the streams of mix * xn. Write: stream_c += 2 sigmoid((W_inject . xn)_c / C) * y.
Order: the matrices' own; the mean adds the streams in ascending order and divides once.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels.float_product import float_tile
from engine.kernels.form import FloatForm
from engine.kernels.lanes import add_in_order, tree
from engine.kernels.linear import levels_for, linear, rows_at_once
from engine.kernels.matrix import Matrix
from engine.kernels.norms import rms_norm
from engine.kernels.scalar import sigmoid, silu

# Values a program.
BLOCK = 256


@triton.jit
def lowered(x, COUNT: tl.constexpr):
    """silu(x / COUNT), float32."""
    return silu(tl.div_rn(x, tl.full(x.shape, COUNT, tl.float32)))


@triton.jit
def shared_out(x, COUNT: tl.constexpr):
    """2 sigmoid(x / COUNT), float32."""
    return 2.0 * sigmoid(tl.div_rn(x, tl.full(x.shape, COUNT, tl.float32)))


@triton.jit(do_not_specialize=["n", "m"])
def activate_kernel(LOW, WEIGHTS, n, m, COUNT: tl.constexpr, B: tl.constexpr):
    """The activations of n numbers of LOW and of m of WEIGHTS, in place. Grid ((n + m) / B,)."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    x = tl.load(LOW + at, mask=at < n, other=0.0)
    tl.store(LOW + at, lowered(x, COUNT), mask=at < n)
    at = at - n
    live = (at >= 0) & (at < m)
    x = tl.load(WEIGHTS + at, mask=live, other=0.0)
    tl.store(WEIGHTS + at, shared_out(x, COUNT), mask=live)


@triton.jit(do_not_specialize=["rows"])
def low_kernel(
    X, DOWN, INJECT, LOW, WEIGHTS, rows, TILES: tl.constexpr, N: tl.constexpr, M: tl.constexpr,
    K: tl.constexpr, DOWN_FORM: tl.constexpr, INJECT_FORM: tl.constexpr, COUNT: tl.constexpr,
    R: tl.constexpr, LEVELS: tl.constexpr,
):  # fmt: skip
    """LOW [rows, N] and WEIGHTS [rows, M] of two float matrices with their activations. Grid (TILES
    of DOWN and then those of INJECT, row blocks of R)."""
    tile = tl.program_id(0)
    row = tl.program_id(1) * R
    p = (row + tl.arange(0, R))[None, :]
    if tile < TILES:
        base = DOWN + tile.to(tl.int64) * (DOWN_FORM.groups * DOWN_FORM.tile * 32)
        x = lowered(float_tile(X, base, row, rows, K, DOWN_FORM, R, LEVELS), COUNT)
        n = (tile * DOWN_FORM.tile + tl.arange(0, DOWN_FORM.tile))[:, None]
        tl.store(LOW + p.to(tl.int64) * N + n, x, mask=(n < N) & (p < rows))
    else:
        tile = tile - TILES
        base = INJECT + tile.to(tl.int64) * (INJECT_FORM.groups * INJECT_FORM.tile * 32)
        x = shared_out(float_tile(X, base, row, rows, K, INJECT_FORM, R, LEVELS), COUNT)
        n = (tile * INJECT_FORM.tile + tl.arange(0, INJECT_FORM.tile))[:, None]
        tl.store(WEIGHTS + p.to(tl.int64) * M + n, x, mask=(n < M) & (p < rows))


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


@triton.jit(do_not_specialize=["rows"])
def mixed_mean_kernel(
    LOW, UP, NORMED, OUT, rows, D: tl.constexpr, K: tl.constexpr, FORM: tl.constexpr,
    COUNT: tl.constexpr, LEVELS: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """As `mean_kernel`, of mix = W_up . LOW for a float matrix of one segment (K <= 512): a program
    has one tile of every stream. Grid (D / tile, row blocks of R). COUNT is 2**LEVELS."""
    B: tl.constexpr = FORM.tile
    GROUPS: tl.constexpr = FORM.groups
    tile = tl.program_id(0)
    row = tl.program_id(1) * R + tl.arange(0, R)
    # Axes: outputs, streams, rows, lanes.
    n = tl.arange(0, B)[:, None, None, None]
    c = tl.arange(0, COUNT)[None, :, None, None]
    r = tl.minimum(row, rows - 1).to(tl.int64)[None, None, :, None]
    lane = tl.arange(0, 32)[None, None, None, :]
    base = UP + (c * (D // B) + tile).to(tl.int64) * (GROUPS * B * 32) + n * 32 + lane
    weights = ()
    for i in tl.static_range(GROUPS):
        weights = weights + (tl.load(base + i * (B * 32)),)
    tl.debug_barrier()  # keeps the loads together, all in flight
    acc = tl.zeros([B, COUNT, R, 32], tl.float32)
    for i in tl.static_range(GROUPS):
        at = i * 32 + lane
        x = tl.load(LOW + r * K + at + n * 0 + c * 0, mask=at < K, other=0.0)
        w, x = tl.broadcast(weights[i].to(tl.float32), x)
        acc = acc + w * x
    mix = sigmoid(tl.reshape(tree(acc, B * COUNT * R), [B, COUNT, R]))
    at = tile * B + tl.arange(0, B)[:, None, None]
    r = tl.minimum(row, rows - 1).to(tl.int64)[None, None, :]
    stream = tl.arange(0, COUNT)[None, :, None]
    term = mix * tl.load(NORMED + (r * COUNT + stream) * D + at)
    term = tl.reshape(tl.permute(term, (1, 0, 2)), [COUNT, B * R])
    # From -0, to which the first term is added without a change (and which is no 0 to `tl.full`).
    nothing = tl.full([B * R], -(2**31), tl.int32).to(tl.float32, bitcast=True)
    total = add_in_order(nothing, term, B * R, LEVELS)
    mean = tl.reshape(tl.div_rn(total, tl.full([B * R], COUNT, tl.float32)), [B, R])
    at = tile * B + tl.arange(0, B)[:, None]
    tl.store(OUT + row.to(tl.int64)[None, :] * D + at, mean, mask=(row < rows)[None, :])


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
    x = torch.empty(rows, width, device=streams.device)
    if not rows:
        return x, None if inject is None else torch.empty(0, inject.rows, device=streams.device)
    if inject is not None and _are_floats(down, inject):
        low, weights = _low_of_floats(normed, down, inject, count)
    else:
        low, weights = _low(normed, down, inject, count)
    _mean_of_mixed(low, up, normed, count, x)
    return x, None if inject is None else weights


def _mean_of_mixed(
    low: torch.Tensor, up: Matrix, normed: torch.Tensor, count: int, out: torch.Tensor
) -> None:
    """out[r, d] = mean over the streams of sigmoid(W_up . low) * normed."""
    rows, width = out.shape
    form = up.form
    a_power = count & (count - 1) == 0
    if isinstance(form, FloatForm) and form.groups <= 16 and a_power and width % form.tile == 0:
        at_once = rows_at_once(rows)
        mixed_mean_kernel[(width // form.tile, triton.cdiv(rows, at_once))](
            low, up.record, normed, out, rows, D=width, K=up.columns, FORM=form, COUNT=count,
            LEVELS=count.bit_length() - 1, R=at_once, num_warps=min(count, 4),
            enable_fp_fusion=False,
        )  # fmt: skip
    else:
        mean_kernel[(triton.cdiv(width, BLOCK), rows)](
            linear(low, up), normed, out, D=width, COUNT=count, B=BLOCK, num_warps=4,
            enable_fp_fusion=False,
        )  # fmt: skip


def _are_floats(*matrices: Matrix) -> bool:
    return all(isinstance(matrix.form, FloatForm) for matrix in matrices)


def _low_of_floats(
    normed: torch.Tensor, down: Matrix, inject: Matrix, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both activated products of the normed streams in one launch."""
    rows, tiles = len(normed), down.record.shape[1]
    low = torch.empty(rows, down.rows, device=normed.device)
    weights = torch.empty(rows, inject.rows, device=normed.device)
    assert isinstance(down.form, FloatForm)
    at_once, levels = rows_at_once(rows), levels_for(down.form.groups)
    low_kernel[(tiles + inject.record.shape[1], triton.cdiv(rows, at_once))](
        normed, down.record, inject.record, low, weights, rows, TILES=tiles, N=down.rows,
        M=inject.rows, K=down.columns, DOWN_FORM=down.form, INJECT_FORM=inject.form, COUNT=count,
        R=at_once, LEVELS=levels, num_warps=1 << levels, enable_fp_fusion=False,
    )  # fmt: skip
    return low, weights


def _low(
    normed: torch.Tensor, down: Matrix, inject: Matrix | None, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same for matrices of any type; without `inject` its product has no columns."""
    low = linear(normed, down)
    weights = low.new_empty(len(low), 0) if inject is None else linear(normed, inject)
    n, m = low.numel(), weights.numel()
    activate_kernel[(triton.cdiv(n + m, BLOCK),)](
        low, weights, n, m, COUNT=count, B=BLOCK, num_warps=4, enable_fp_fusion=False
    )
    return low, weights


def hyper_write(streams: torch.Tensor, weights: torch.Tensor, y: torch.Tensor) -> None:
    """streams[r, c] += weights[r, c] * y[r], in place. float32 [R, C, D], [R, C], [R, D]."""
    rows, count, width = streams.shape
    assert streams.is_contiguous()
    if rows:
        write_kernel[(triton.cdiv(width, BLOCK), rows)](
            streams, weights.contiguous(), y.contiguous(), D=width, COUNT=count, B=BLOCK,
            num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
