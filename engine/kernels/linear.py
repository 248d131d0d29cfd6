"""Matrix products in the fixed order of sums, for any number of rows: launches.

Few rows take kernels that spread one row over the chip, many rows take tensor cores; a row has the
same bits either way.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton.language as tl

from engine.kernels import float_product, integer_product
from engine.kernels.form import TILE, FloatForm, Form
from engine.kernels.matrix import Matrix
from engine.kernels.quantise import Activations, quantised

# Most rows that a dp4a program takes at once, and from how many rows tensor cores are used.
FEW = 4
ROW_TILE = 16
# From how many programs on a chip is full, so that they need not share segments.
FULL_CHIP = 2048
_BLOCK = 512
# Warps a program, as a power of two: a warp takes a segment.
_MOST_LEVELS = 3
_KINDS = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


def linear(x: torch.Tensor, weight: Matrix) -> torch.Tensor:
    """Rows times the transposed matrix: float32 [R, K] -> [R, N]."""
    rows = x.shape[0]
    if not rows:
        return torch.empty((0, weight.rows), dtype=torch.float32, device=x.device)
    if isinstance(weight.form, FloatForm):
        return _float_few(x, weight, None, 0)
    if rows <= FEW:
        return integer_few(quantised(x.contiguous(), woven=False), weight, None, 0)
    return integer_many(quantised(x.contiguous(), woven=True), weight)


def product(x: torch.Tensor, weight: Matrix, experts: torch.Tensor, used: int) -> torch.Tensor:
    """Row p of the result is matrix experts[p] of a stack times row p // used of x: [P, N].

    experts: int32 [P], P > 0."""
    if isinstance(weight.form, FloatForm):
        return _float_few(x, weight, experts, used)
    return integer_few(quantised(x.contiguous(), woven=False), weight, experts, used)


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
    x: Activations, weight: Matrix, experts: torch.Tensor | None, used: int
) -> torch.Tensor:
    """Rows by dp4a; with `experts` as `product` says."""
    form = weight.form
    assert isinstance(form, Form)
    rows = len(x.codes) if experts is None else experts.numel()
    out = torch.empty((rows, weight.rows), dtype=torch.float32, device=x.codes.device)
    r = 1 if used else rows_at_once(rows)
    levels = levels_for(form.groups)
    grid = (-(-weight.rows // TILE), -(-rows // r))
    stack = weight.addresses if used else weight.record
    integer_product.few[grid](
        x.codes, x.info, stack, out if experts is None else experts, out, rows,
        N=weight.rows, USED=used, FORM=form, R=r, B=TILE, LEVELS=levels, ASM=assembly(out),
        num_warps=1 << levels, enable_fp_fusion=False,
    )  # fmt: skip
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Pairs of a row and an expert, sorted by expert, in blocks of ROW_TILE pairs of one expert.

    experts: int32 [blocks], -1 for a block without pairs. pairs: int32 [blocks * ROW_TILE], -1 for
    none. count: pairs.
    """

    experts: torch.Tensor
    pairs: torch.Tensor
    count: int


def groups_of(experts: torch.Tensor, count: int) -> Groups:
    """The groups of experts int32 [P], of `count` experts. Shapes do not depend on values."""
    pairs, device = experts.numel(), experts.device
    ordered, order = torch.sort(experts, stable=True)
    every = torch.arange(count + 1, dtype=torch.int32, device=device)
    starts = torch.searchsorted(ordered, every)
    blocks = (starts.diff() + ROW_TILE - 1) // ROW_TILE
    ends = blocks.cumsum(0)
    rank = torch.arange(pairs, device=device) - starts[ordered]
    place = (ends - blocks)[ordered] * ROW_TILE + rank
    most = min(pairs, pairs // ROW_TILE + count)
    places = torch.full((most * ROW_TILE,), -1, dtype=torch.int32, device=device)
    places[place] = order.int()
    of_block = torch.searchsorted(ends, torch.arange(most, device=device), right=True)
    of_block = torch.where(of_block < count, of_block, -1).int()
    return Groups(of_block, places, pairs)


def integer_many(
    x: Activations, weight: Matrix, groups: Groups | None = None, used: int = 0
) -> torch.Tensor:
    """Rows by tensor cores, from woven codes; with `groups` as `product`, for all their pairs."""
    form = weight.form
    assert isinstance(form, Form)
    rows = len(x.codes) if groups is None else groups.count
    segments = -(-form.groups // 16)
    tiles = -(-weight.rows // TILE)
    blocks = -(-rows // ROW_TILE) if groups is None else len(groups.experts)
    split = segments > 1 and tiles * blocks < FULL_CHIP
    out = torch.empty((rows, weight.rows), dtype=torch.float32, device=x.codes.device)
    parts = out.new_empty((segments, *out.shape)) if split else out
    integer_product.many[(tiles, blocks, segments if split else 1)](
        x.codes, x.info, weight.record if groups is None else weight.addresses,
        out if groups is None else groups.experts, out if groups is None else groups.pairs,
        parts, rows,
        N=weight.rows, USED=used, FORM=form, R=ROW_TILE, B=TILE, SPLIT=split,
        ASM=assembly(out), num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
    if split:
        grid = (-(-out.numel() // _BLOCK),)
        integer_product.add_segments[grid](
            parts, out, out.numel(), SEGMENTS=segments, B=_BLOCK, enable_fp_fusion=False
        )
    return out


def _float_few(
    x: torch.Tensor, weight: Matrix, experts: torch.Tensor | None, used: int
) -> torch.Tensor:
    form = weight.form
    rows = len(x) if experts is None else experts.numel()
    out = torch.empty((rows, weight.rows), dtype=torch.float32, device=x.device)
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
    return out
