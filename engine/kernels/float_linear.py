"""Products of rows and float matrices: launches. A row has the same bits whichever kernel runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from engine.kernels import float_product
from engine.kernels.dependent import launch_options
from engine.kernels.matrix import Matrix

_TYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
# Matrices of one launch.
_MATRICES = 4
# Most segments that a program of `few` has at once, for up to as many rows.
_MOST_SEGMENTS = ((2, 32), (4, 8))
# From how many programs on a chip is full, so that they need not share segments.
_FULL_CHIP = 264
_BLOCK = 256
# Up to how many rows `few` is faster than `many`, the tiles of a program of `few` where it does not
# have all segments, and pairs of tiles and blocks of four rows of a program of `many`.
_FEW = 32
_TILES = 8
_PAIRS, _ROW_BLOCKS = 4, 8


def float_project(x: torch.Tensor, matrices: Sequence[Matrix]) -> list[torch.Tensor]:
    """The products of float32 [R, K] with float matrices of K inputs: float32 [R, N] of each."""
    out = [torch.empty((len(x), m.rows), dtype=torch.float32, device=x.device) for m in matrices]
    if not len(x):
        return out
    for dtype in dict.fromkeys(m.record.dtype for m in matrices):
        alike = [i for i, m in enumerate(matrices) if m.record.dtype == dtype]
        for first in range(0, len(alike), _MATRICES):
            some = alike[first : first + _MATRICES]
            products = _project(x, [matrices[i] for i in some])
            for i, product in zip(some, products, strict=True):
                out[i] = product
    return out


def float_product_of_stack(
    x: torch.Tensor, weight: Matrix, experts: torch.Tensor, used: int, out: torch.Tensor
) -> None:
    """Row p of `out`, [P, N], becomes matrix experts[p] of a stack times row p // used of x.

    experts: int32 [P], P > 0, at most 65,535."""
    _few(x, [weight], out, len(experts), (1, 1, 0), False, experts, used)


def _project(x: torch.Tensor, matrices: list[Matrix]) -> list[torch.Tensor]:
    """The same of at most _MATRICES matrices of one type of weights."""
    x = x.contiguous()
    rows, groups = len(x), -(-x.shape[1] // 32)
    widths = [m.rows for m in matrices]
    segments = -(-groups // 16)
    row_levels = min(rows.bit_length() - 1, 2)
    out = torch.empty(rows * sum(widths), dtype=torch.float32, device=x.device)
    if any(rows <= few and segments <= most for few, most in _MOST_SEGMENTS):
        _few(x, matrices, out, rows, (1, 1, row_levels), False, None, 0)
    else:
        if rows <= _FEW:
            blocks = 1 if rows < 2 << row_levels else 2
            outputs, block_rows = 4 * _TILES, blocks << row_levels
        else:
            outputs, block_rows = 8 * _PAIRS, 4 * _ROW_BLOCKS
        programs = sum(-(-n // outputs) for n in widths) * -(-rows // block_rows)
        split = segments > 1 and (rows <= _FEW or programs < _FULL_CHIP)
        to = torch.empty((segments, out.numel()), device=x.device) if split else out
        if rows <= _FEW:
            shape = (_TILES, blocks, row_levels)
            _few(x, matrices, to, rows, shape, split, None, 0)
        else:
            _many(x, matrices, to, split)
        if split:
            float_product.add_parts[(triton.cdiv(out.numel(), _BLOCK),)](
                to, out, out.numel(), segments, B=_BLOCK, num_warps=4, **launch_options(x)
            )  # fmt: skip
    parts = out.split([rows * n for n in widths])
    return [part.view(rows, n) for part, n in zip(parts, widths, strict=True)]


def _few(
    x: torch.Tensor,
    matrices: list[Matrix],
    out: torch.Tensor,
    rows: int,
    shape: tuple[int, int, int],
    split: bool,
    experts: torch.Tensor | None,
    used: int,
) -> None:
    """shape: tiles, blocks and levels of rows of a program."""
    tiles, blocks, row_levels = shape
    groups = -(-x.shape[1] // 32)
    segments = -(-groups // 16)
    levels = 0 if split else (segments - 1).bit_length()
    per = 4 * tiles
    grid = (
        sum(-(-m.rows // per) for m in matrices),
        -(-rows // (blocks << row_levels)),
        segments if split else 1,
    )
    records = [m.addresses if used else m.record for m in matrices]
    widths = [m.rows for m in matrices]
    float_product.few[grid](
        x, *_four(records, records[0]), out if experts is None else experts, out,
        *_four(widths, 0), rows, x.shape[1], groups, USED=used, COUNT=len(matrices),
        TILES=tiles, BLOCKS=blocks, LEVELS=levels,
        ROW_LEVELS=row_levels, SPLIT=split, EVEN=x.shape[1] % 32 == 0, UNROLLED=min(groups, 16),
        TYPE=_TYPES[matrices[0].record.dtype],
        num_warps=max((tiles * blocks << levels) // 4, 1), **launch_options(x),
    )  # fmt: skip


def _many(
    x: torch.Tensor,
    matrices: list[Matrix],
    out: torch.Tensor,
    split: bool,
) -> None:
    rows, groups = len(x), -(-x.shape[1] // 32)
    grid = (
        sum(-(-m.rows // (8 * _PAIRS)) for m in matrices),
        -(-rows // (4 * _ROW_BLOCKS)),
        -(-groups // 16) if split else 1,
    )
    records = [packed(m) for m in matrices]
    float_product.many[grid](
        x, *_four(records, records[0]), out, *_four([m.rows for m in matrices], 0), rows,
        K=x.shape[1], COUNT=len(matrices), PAIRS=_PAIRS,
        BLOCKS=_ROW_BLOCKS, ROW_LEVELS=2, SPLIT=split, PACKED=records[0].dtype == torch.int32,
        num_warps=_PAIRS * _ROW_BLOCKS // 4, **launch_options(x),
    )  # fmt: skip


def packed(matrix: Matrix) -> torch.Tensor:
    """The record as `float_product.halves` takes it."""
    record = matrix.record
    return record.view(torch.int32) if record.dtype == torch.bfloat16 else record


def _four(items: list[Any], other: Any) -> list[Any]:
    """What kernels take: four, the missing ones replaced."""
    return items + [other] * (_MATRICES - len(items))
