"""Hyper-connections: C residual streams, read as one input and written with one weight a stream.

Read: xn = grouped RMS norm of the streams; mix = sigmoid(W_up . silu((W_down . xn) / C));
input = mean over the streams of mix * xn. Write: stream_c += 2 sigmoid((W_inject . xn)_c / C) * y.
Order: the matrices' own; the mean adds the streams in ascending order and divides once.

One row takes two launches: `low` computes the norms' factors and both products of the normed
streams, `up_mean` the rest. More rows take the norm and the products one after the other.
"""

from __future__ import annotations

import torch
import triton

from engine.kernels import hyper_kernels as kernels
from engine.kernels.dependent import launch_options
from engine.kernels.float_linear import float_project, kinds_of, packed
from engine.kernels.float_product import LOWERED, SHARE
from engine.kernels.form import FloatForm
from engine.kernels.inputs import Input, room
from engine.kernels.linear import linear
from engine.kernels.matrix import Matrix
from engine.kernels.norms import rms_norm, segment_levels

# Numbers of a program that treats every one alone.
BLOCK = 256
# Outputs of a program of `low`: three spread 324 outputs best over the processors of a large card.
_OUTPUTS = 3
# Most segments of a row that a program of `low` can hold.
_MOST_SEGMENTS = 32
# Up to how many rows a program of `up_mean` serves four.
_FEW = 16
# Rows of a block of `up_mean_many`, and programs of it that keep a large card busy.
_BLOCK_ROWS = 8
_PROGRAMS = 1056


def hyper_read(
    streams: torch.Tensor,
    norm: torch.Tensor,
    down: Matrix,
    up: Matrix,
    inject: Matrix | None,
    eps: float,
) -> tuple[Input, torch.Tensor | None]:
    """The block input, [R, D], and the streams' write weights, float32 [R, C] (None: no inject).

    `streams` is float32 [R, C, D].
    """
    streams = streams.contiguous()
    rows, count, width = streams.shape
    out = room(rows, width, streams.device)
    if not rows:
        return out, None if inject is None else torch.empty(0, inject.rows, device=streams.device)
    if rows == 1 and _fits_low(count, width, down, inject) and _fits_mean(count, width, up):
        return out, _one_row(streams, norm, down, up, inject, eps, out)
    xn = rms_norm(streams.view(rows, count * width), norm, width, eps)
    low_rows, weights = _low(xn, down, inject, count)
    if _fits_mean(count, width, up):
        _mean_of_mixed(low_rows, up, xn, count, out)
    else:
        groups = out.codes.shape[1]
        kernels.mean[(rows, groups // 16)](
            linear(low_rows, up), xn, out.values, out.codes, out.info, groups, width, COUNT=count,
            num_warps=1, **launch_options(xn),
        )  # fmt: skip
    return out, weights


def _are_floats(*matrices: Matrix) -> bool:
    return all(isinstance(matrix.form, FloatForm) for matrix in matrices)


def _fits_low(count: int, width: int, down: Matrix, inject: Matrix | None) -> bool:
    """True if `low` can have these matrices."""
    matrices = [down] if inject is None else [down, inject]
    segments = count << segment_levels(width)
    return (
        _are_floats(*matrices)
        and len({m.record.dtype for m in matrices}) == 1
        and count & (count - 1) == 0
        and width % 512 == 0
        and segments <= _MOST_SEGMENTS
    )


def _fits_mean(count: int, width: int, up: Matrix) -> bool:
    """True if `up_mean` can have this matrix."""
    return _are_floats(up) and -(-up.columns // 32) <= 16 and width % 32 == 0 and count <= 4


def _one_row(
    streams: torch.Tensor,
    norm: torch.Tensor,
    down: Matrix,
    up: Matrix,
    inject: Matrix | None,
    eps: float,
    out: Input,
) -> torch.Tensor | None:
    """`hyper_read` of one row: fills `out`, returns the write weights."""
    _, count, width = streams.shape
    n, m = down.rows, 0 if inject is None else inject.rows
    products = torch.empty(n + m, device=streams.device)
    factors = torch.empty(count, device=streams.device)
    levels = segment_levels(width)
    kernels.low[(triton.cdiv(n, _OUTPUTS) + triton.cdiv(m, _OUTPUTS),)](
        streams, norm, down.record, (inject or down).record, products, factors, n, m, eps,
        SEGMENTS=width // 512, LEVELS=levels, STREAM_LEVELS=count.bit_length() - 1,
        OUTPUTS=_OUTPUTS, num_warps=max((count << levels) // 2, 1), **kinds_of((LOWERED, SHARE)),
        **launch_options(streams),
    )  # fmt: skip
    kernels.up_mean[(width // 32, 1)](
        products, up.record, streams, norm, factors, out.values, out.codes, out.info, 1,
        out.codes.shape[1], width, n, GROUPS=-(-up.columns // 32), COUNT=count, ROW_LEVELS=0,
        NORMED=False, EVEN=n % 32 == 0, num_warps=4, **launch_options(streams),
    )  # fmt: skip
    return None if inject is None else products[n:].view(1, m)


def _mean_of_mixed(
    low_rows: torch.Tensor, up: Matrix, xn: torch.Tensor, count: int, out: Input
) -> None:
    """The mean of several normed rows, where `_fits_mean` is true."""
    rows, width = out.values.shape
    stored = out.codes.shape[1]
    levels = min(rows.bit_length() - 1, 2)
    even, options = up.columns % 32 == 0, launch_options(xn)
    if rows <= _FEW:
        kernels.up_mean[(width // 32, triton.cdiv(rows, 1 << levels))](
            low_rows, up.record, xn, xn, xn, out.values, out.codes, out.info, rows, stored, width,
            up.columns, GROUPS=-(-up.columns // 32), COUNT=count, ROW_LEVELS=levels, NORMED=True,
            EVEN=even, num_warps=8, **options,
        )  # fmt: skip
        return
    blocks = triton.cdiv(rows, _BLOCK_ROWS)
    at_once = max(1, min(8, blocks * (width // 32) // _PROGRAMS))
    record = packed(up)
    kernels.up_mean_many[(width // 32, triton.cdiv(blocks, at_once))](
        low_rows, record, xn, out.values, out.codes, out.info, rows, stored, at_once, D=width,
        K=up.columns, COUNT=count, BLOCKS=_BLOCK_ROWS // 4, ROW_LEVELS=2,
        PACKED=record.dtype == torch.int32, num_warps=_BLOCK_ROWS, **options,
    )  # fmt: skip


def _low(
    xn: torch.Tensor, down: Matrix, inject: Matrix | None, count: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Both activated products of normed streams."""
    matrices = [down] if inject is None else [down, inject]
    if _are_floats(*matrices):
        products = float_project(xn, matrices, (LOWERED, SHARE)[: len(matrices)], count)
    else:
        products = [linear(xn, matrix) for matrix in matrices]
        n, m = down.rows * len(xn), 0 if inject is None else inject.rows * len(xn)
        kernels.activate[(triton.cdiv(n + m, BLOCK),)](
            products[0], products[-1], n, m, COUNT=count, B=BLOCK, num_warps=4,
            **launch_options(xn),
        )  # fmt: skip
    return products[0], None if inject is None else products[1]


def hyper_write(streams: torch.Tensor, weights: torch.Tensor, y: torch.Tensor) -> None:
    """streams[r, c] += weights[r, c] * y[r], in place. float32 [R, C, D], [R, C], [R, D]."""
    rows, count, width = streams.shape
    assert streams.is_contiguous()
    if rows:
        kernels.write[(triton.cdiv(width, BLOCK), rows)](
            streams, weights.contiguous(), y.contiguous(), D=width, COUNT=count, B=BLOCK,
            num_warps=4, **launch_options(streams),
        )  # fmt: skip
