"""Matrix products in the fixed order of sums, for any number of rows: launches.

Few rows take kernels that spread one row over the chip, many rows take tensor cores; a row has the
same bits either way.
"""

from __future__ import annotations

import torch
import triton.language as tl

from engine.kernels import float_product, integer_product
from engine.kernels.form import TILE, FloatForm, Form
from engine.kernels.matrix import Matrix
from engine.kernels.quantise import Activations, quantised

# Most rows that a dp4a program takes at once, and from how many rows tensor cores are used.
FEW = 4
ROW_TILE = 16
# Up to how many rows a segment has a warp of its own; more rows fill the chip by themselves.
SPREAD_ROWS = 64
# Warps a program, as a power of two: a warp takes a segment.
_MOST_LEVELS = 3
_KINDS = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


def linear(x: torch.Tensor, weight: Matrix) -> torch.Tensor:
    """Rows times the transposed matrix: float32 [R, K] -> [R, N]."""
    rows = x.shape[0]
    out = torch.empty((rows, weight.rows), dtype=torch.float32, device=x.device)
    if not rows:
        return out
    if isinstance(weight.form, FloatForm):
        _float_few(x, weight, None, 0, out)
    elif rows <= FEW:
        integer_few(quantised(x.contiguous(), woven=False), weight, None, 0, out)
    else:
        integer_many(quantised(x.contiguous(), woven=True), weight, out)
    return out


def product(x: torch.Tensor, weight: Matrix, experts: torch.Tensor, used: int) -> torch.Tensor:
    """Row p of the result is matrix experts[p] of a stack times row p // used of x: [P, N].

    experts: int32 [P]."""
    pairs = experts.numel()
    out = torch.empty((pairs, weight.rows), dtype=torch.float32, device=x.device)
    if not pairs:
        return out
    if isinstance(weight.form, FloatForm):
        _float_few(x, weight, experts, used, out)
    else:
        integer_few(quantised(x.contiguous(), woven=False), weight, experts, used, out)
    return out


def levels_for(groups: int) -> int:
    """The power of two of segments that a program takes at once."""
    segments = -(-groups // 16)
    return min(_MOST_LEVELS, (segments - 1).bit_length())


def rows_at_once(rows: int) -> int:
    """Rows of one program: a power of two up to `FEW`."""
    return min(FEW, 1 << (rows - 1).bit_length())


def assembly(tensor: torch.Tensor) -> bool:
    """True where kernels may use PTX: NVIDIA, and not the interpreter."""
    return tensor.is_cuda and torch.version.hip is None


def integer_few(
    x: Activations, weight: Matrix, experts: torch.Tensor | None, used: int, out: torch.Tensor
) -> None:
    """Rows by dp4a; with `experts` as `product` says."""
    form, rows = weight.form, len(out)
    assert isinstance(form, Form)
    r = 1 if used else rows_at_once(rows)
    levels = levels_for(form.groups)
    grid = (-(-weight.rows // TILE), -(-rows // r))
    stack = weight.addresses if used else weight.record
    integer_product.few[grid](
        x.codes, x.info, stack, out if experts is None else experts, out, rows,
        N=weight.rows, USED=used, FORM=form, R=r, B=TILE, LEVELS=levels, ASM=assembly(out),
        num_warps=1 << levels, enable_fp_fusion=False,
    )  # fmt: skip


def integer_many(x: Activations, weight: Matrix, out: torch.Tensor) -> None:
    """Rows by tensor cores."""
    form, rows = weight.form, len(out)
    assert isinstance(form, Form)
    levels = levels_for(form.groups) if rows <= SPREAD_ROWS else 0
    grid = (-(-weight.rows // TILE), -(-rows // ROW_TILE))
    integer_product.many[grid](
        x.codes, x.info, weight.record, out, rows,
        N=weight.rows, FORM=form, R=ROW_TILE, B=TILE, LEVELS=levels, ASM=assembly(out),
        num_warps=1 << levels, enable_fp_fusion=False,
    )  # fmt: skip


def _float_few(
    x: torch.Tensor, weight: Matrix, experts: torch.Tensor | None, used: int, out: torch.Tensor
) -> None:
    form, rows = weight.form, len(out)
    r = 1 if used else rows_at_once(rows)
    levels = levels_for(form.groups)
    grid = (weight.record.shape[1], -(-rows // r))
    stack = weight.addresses if used else weight.record
    float_product.few[grid](
        x.contiguous(), stack, out if experts is None else experts, out, rows,
        N=weight.rows, K=weight.columns, USED=used, FORM=form, R=r, LEVELS=levels,
        KIND=_KINDS[weight.record.dtype],
        num_warps=1 << levels, enable_fp_fusion=False,
    )  # fmt: skip
