"""Hyper-connections: C residual streams, read as one input and written with one weight a stream.

Read: xn = grouped RMS norm of the streams; mix = sigmoid(W_up . silu((W_down . xn) / C));
input = mean over the streams of mix * xn. Write: stream_c += 2 sigmoid((W_inject . xn)_c / C) * y.
Order: the matrices' own; the mean adds the streams in ascending order and divides once.

With matrices of integers that is three launches for few rows: the norm as an input of matrices,
both of its products, whose first is an input again, and the rest. One row takes two, see
`hyper_row.py`. More rows take the products as other matrices do. Matrices of floats take every
step on its own.
"""

from __future__ import annotations

import torch
import triton

from engine.kernels import hyper_kernels as kernels
from engine.kernels import hyper_row
from engine.kernels.dependent import launch_options
from engine.kernels.form import GROUP, LIMBS, SEGMENT, TILE, Form
from engine.kernels.inputs import ROWS, Input, as_input, room
from engine.kernels.linear import assembly, linear, project
from engine.kernels.matrix import Matrix
from engine.kernels.norms import rms_norm, segment_levels

# Groups of a segment of inputs.
_SEGMENT_GROUPS = 16
# Numbers of a program that treats every one alone.
BLOCK = 256
# Up to how many rows programs share the segments of `down`.
_FEW = 64
# Programs of `up_mean` that keep a large card busy.
_PROGRAMS = 1056
# Without such a limit the assembler aims at more programs a multiprocessor: rows come in turns.
_ALL_REGISTERS = 255


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
    if not rows:
        none = None if inject is None else torch.empty(0, inject.rows, device=streams.device)
        return room(rows, width, streams.device), none
    if _fits(count, width, down, up, inject):
        return _read(streams, norm, down, up, inject, eps)
    xn = rms_norm(streams.view(rows, count * width), norm, width, eps)
    low, weights = _low(xn, down, inject, count)
    out = room(rows, width, streams.device)
    groups = out.codes.shape[1]
    kernels.mean[(rows, groups // 16)](
        linear(low, up), xn, out.values, out.codes, out.info, groups, width, COUNT=count,
        num_warps=1, **launch_options(xn),
    )  # fmt: skip
    return out, weights


def _fits(count: int, width: int, down: Matrix, up: Matrix, inject: Matrix | None) -> bool:
    """True if the kernels can have these matrices."""
    return (
        isinstance(up.form, Form)
        and isinstance(down.form, Form)
        and (inject is None or (inject.form == down.form and inject.rows <= TILE))
        and count in (1, 2, 4)
        and width % GROUP == 0
        and down.rows % GROUP == 0
        and up.quads <= SEGMENT
    )


def _read(
    streams: torch.Tensor,
    norm: torch.Tensor,
    down: Matrix,
    up: Matrix,
    inject: Matrix | None,
    eps: float,
) -> tuple[Input, torch.Tensor | None]:
    """`hyper_read` with matrices of integers."""
    rows, count, width = streams.shape
    limbs, whole = down.form == up.form == LIMBS, width % (GROUP * _SEGMENT_GROUPS) == 0
    if rows == 1 and limbs and whole and assembly(streams):
        return _read_row(streams, norm, down, up, inject, eps)
    device, options = streams.device, launch_options(streams)
    xn, out = room(rows, count * width, device), room(rows, width, device)
    blocks, groups = -(-rows // ROWS), down.rows // GROUP + (inject is not None)
    counters = torch.empty((blocks, groups), dtype=torch.int32, device=device)
    levels = segment_levels(width)
    factors = torch.empty((rows, count), device=device)
    # With few rows many programs share one, and each computes the norm's factor.
    parts = -(-width // (GROUP * _SEGMENT_GROUPS))
    together = 1 if rows <= _FEW else parts
    kernels.normed_streams[(rows, count, parts // together)](
        streams, norm, factors, xn.codes, xn.info, counters, eps, xn.codes.shape[1], groups,
        D=width, LEVELS=levels, M=_SEGMENT_GROUPS, PARTS=together,
        POWER=triton.next_power_of_2(groups),
        num_warps=1 << min(levels, 3) if rows <= _FEW else 4, **options,
    )  # fmt: skip
    if rows <= _FEW:
        low = room(rows, down.rows, device)
        weights = torch.empty((rows, 0 if inject is None else inject.rows), device=device)
        segments = -(-down.quads // SEGMENT)
        kernels.low[(-(-segments // 2), groups, blocks)](
            xn.codes, xn.info, down.record, (inject or down).record,
            torch.empty(blocks * groups * segments * 256, device=device), counters, low.codes,
            low.info, weights, down.rows, weights.shape[1], rows, down.quads, down.groups,
            xn.codes.shape[1], low.codes.shape[1], FORM=down.form, DIVISOR=count,
            WHOLE=down.groups % 16 == 0, ASM=assembly(streams), num_warps=4, **options,
        )  # fmt: skip
    else:
        products, found = _low(xn, down, inject, count)
        low, weights = as_input(products), products if found is None else found
    each = max(1, min(blocks, blocks * (width // GROUP) // _PROGRAMS))
    kernels.up_mean[(width // GROUP, -(-blocks // each))](
        low.codes, low.info, up.record, streams, norm, factors, out.values, out.codes, out.info,
        rows, up.groups, low.codes.shape[1], out.codes.shape[1], each, D=width,
        LEVELS=count.bit_length() - 1, GROUPS=up.groups, FORM=up.form, ASM=assembly(streams),
        num_warps=2 * count, **options,
    )  # fmt: skip
    return out, None if inject is None else weights


def _read_row(
    streams: torch.Tensor,
    norm: torch.Tensor,
    down: Matrix,
    up: Matrix,
    inject: Matrix | None,
    eps: float,
) -> tuple[Input, torch.Tensor | None]:
    """`_read` of one row: parts of both first products, then the rest."""
    _, count, width = streams.shape
    device, options = streams.device, launch_options(streams)
    most, segments = {"maxnreg": _ALL_REGISTERS}, down.quads // SEGMENT
    out = room(1, width, device)
    shares = torch.empty((1, 0 if inject is None else inject.rows), device=device)
    parts = torch.empty(segments * hyper_row.PART.value + count, device=device)
    more = int(inject is not None)
    hyper_row.low_of_row[(segments, -(-down.tiles // 4) + more)](
        streams, norm, down.record, (inject or down).record, parts, eps, down.rows, down.quads,
        D=width, FORM=down.form, num_warps=4, **most, **options,
    )  # fmt: skip
    hyper_row.up_of_row[(width // GROUP + more,)](
        parts, streams, norm, up.record, out.values, out.codes, out.info, shares, shares.shape[1],
        D=width, C=count, GROUPS=up.groups, FORM=up.form, num_warps=2 * count, **most, **options,
    )  # fmt: skip
    return out, None if inject is None else shares


def _low(
    xn: Input | torch.Tensor, down: Matrix, inject: Matrix | None, count: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Both activated products of normed streams."""
    products = project(xn, [down] if inject is None else [down, inject])
    n, m = products[0].numel(), 0 if inject is None else products[1].numel()
    kernels.activate[(triton.cdiv(n + m, BLOCK),)](
        products[0], products[-1], n, m, COUNT=count, B=BLOCK, num_warps=4,
        **launch_options(products[0]),
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
