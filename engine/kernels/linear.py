"""Matrix products in the fixed order of sums, for any number of rows: launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.kernels import few_product, rows_product
from engine.kernels.awaited import room
from engine.kernels.dependent import launch_options
from engine.kernels.experts_route import Choice, choose
from engine.kernels.float_linear import float_product_of_stack, float_project
from engine.kernels.form import LIMBS, QUAD, SEGMENT, TILE, FloatForm, Form
from engine.kernels.inputs import ROWS, Input, as_input
from engine.kernels.matrix import Matrix

# Most matrices of one launch.
_TOGETHER = 5
_PAIR_WARPS = 4
# Pairs of a row and an expert of one launch: the most that the second axis of a grid can have.
_MOST_PAIRS = 65535


@dataclass(frozen=True, slots=True)
class Plan:
    """How a launch spreads over the chip; no number depends on it.

    columns: 1 for a program a row, 2 for blocks of eight rows, `blocks` of them a program. split: a
    warp takes one segment of one of `tiles` tiles at a time, else a tile each. registers: most of
    a thread, 0 for any number. loop: a warp takes a quad after the other, else all of a segment.
    """

    columns: int
    blocks: int
    split: bool
    tiles: int
    warps: int
    registers: int = 0
    loop: bool = False


@dataclass(frozen=True, slots=True)
class FewPlan:
    """The same of one to four rows, with PTX: a program takes `tiles` tiles, and columns of tensor
    cores are for `rows` rows. ahead: quads under way while one is used, 0 for one and a loop."""

    rows: int
    tiles: int
    warps: int
    registers: int
    ahead: int = 0


# Up to how many rows are few, and up to how many segments of three tiles meet in 48 KiB.
_FEW, _MOST_SEGMENTS = 4, 64
# Up to how many tiles a program takes one, and from how many on warps need not share a tile.
_SMALL, _LARGE = 264, 4096
# Tiles of blocks of rows, a warp each, that fill a large card.
_FILLING = 1056


def plan_for(rows: int, tiles: int, segments: int, limbs: bool) -> Plan:
    """The plan for some rows, tiles of outputs and segments of inputs. limbs: all matrices are of
    two limbs, of which a segment fills 128 registers."""
    if rows > 2 * ROWS:
        few = tiles * -(-rows // (4 * ROWS)) < _FILLING and segments > 1
        return Plan(2, 4, few, 1, 4, 168, True)
    columns = 1 if rows == 1 else 2
    if rows > ROWS:
        split = tiles < _LARGE and segments > 1
        return Plan(2, 2, split, 1 if tiles <= _SMALL else 3, 8 if split else 4, 128, True)
    if tiles >= _LARGE or segments == 1:
        return Plan(columns, 1, False, 1, 4, 168 if limbs else 128)
    if tiles > _SMALL:
        return Plan(columns, 1, True, 4 if limbs else 3, 8, 128 if limbs else 80, True)
    return Plan(columns, 1, True, 1, 8 if limbs else 4, 168 if limbs else 128)


def few_plan_for(rows: int, tiles: int, segments: int, limbs: bool) -> FewPlan | None:
    """The plan of few rows; None where `plan_for` has a faster one, or sums do not fit."""
    if rows > _FEW or not 1 < segments <= _MOST_SEGMENTS:
        return None
    if rows == 1:
        return FewPlan(1, 3, 4, 168) if _SMALL < tiles < _LARGE and not limbs else None
    ahead = 0 if limbs else 2
    if tiles <= _SMALL:
        return FewPlan(4, 1, 4 if segments <= 8 else 8, 128, ahead)
    return FewPlan(4, 3, 8, 128, ahead)


def linear(x: Input | torch.Tensor, weight: Matrix) -> torch.Tensor:
    """Rows times the transposed matrix: float32 [R, K] -> [R, N]."""
    return project(x, (weight,))[0]


def project(
    x: Input | torch.Tensor, weights: Sequence[Matrix], choice: Choice | None = None
) -> tuple[torch.Tensor, ...]:
    """Rows times several transposed matrices: float32 [R, K] -> [R, N] each. The choice is made of
    the first one's results, by the launch that makes them if it can."""
    values = x.values if isinstance(x, Input) else x
    results: dict[int, torch.Tensor] = {}
    integers: list[int] = []
    floats: list[int] = []
    for i, weight in enumerate(weights):
        if not len(values):
            results[i] = values.new_empty((0, weight.rows))
        else:
            (floats if isinstance(weight.form, FloatForm) else integers).append(i)
    products = float_project(values, [weights[i] for i in floats])
    results.update(zip(floats, products, strict=True))
    # The same forms next to each other: they share a program.
    integers.sort(key=lambda i: (str(weights[i].form), i))
    rounded = x if isinstance(x, Input) or not integers else as_input(x)
    for start in range(0, len(integers), _TOGETHER):
        some = integers[start : start + _TOGETHER]
        assert isinstance(rounded, Input)
        chosen = [weights[i] for i in some]
        rows = rounded.rows
        count = rows * sum(w.rows for w in chosen)
        # Up to eight rows are one block, whose choice waits for the first matrix's results.
        fused = choice if some[0] == 0 and rows <= ROWS else None
        if fused is None or _few_plan(rows, chosen, values) is not None:
            fused, out = None, values.new_empty(count)
        else:
            choice = None
            use = f"logits {rows} {chosen[0].rows}"
            out = room(use, count, torch.float32, values.device)
        _launch(rounded, chosen, out, None, 0, fused)
        sizes = [rows * w.rows for w in chosen]
        for i, part in zip(some, out.split(sizes), strict=True):
            results[i] = part.view(rows, -1)
    if choice is not None:
        choose(results[0], choice)
    return tuple(results[i] for i in range(len(weights)))


def project_into(
    residual: torch.Tensor, shares: torch.Tensor | None, x: Input | torch.Tensor, weight: Matrix
) -> None:
    """Adds y, rows times the transposed matrix, to float32 [R, N], or with shares, float32 [R, C],
    to [R, C, N]: share times y to each stream. In place."""
    rounded = x if isinstance(x, Input) else as_input(x)
    assert residual.is_contiguous()
    assert isinstance(weight.form, Form), "residuals get integer products only"
    if rounded.rows:
        streams = 1 if shares is None else shares.shape[1]
        _launch(rounded, [weight], residual, shares, streams)


def _launch(
    x: Input, weights: Sequence[Matrix], out: torch.Tensor, shares: torch.Tensor | None,
    streams: int, choice: Choice | None = None,
) -> None:  # fmt: skip
    first = weights[0]
    tiles, segments, limbs = _size(weights)
    matrices = [*((w.record, w.rows) for w in weights), *[(first.record, 0)] * 4][:_TOGETHER]
    given = (*(a for pair in matrices for a in pair), out, out if shares is None else shares)
    forms: dict[str, Any] = {
        "FORMS": tuple(w.form for w in weights), "STREAMS": streams, "SHARED": shares is not None,
    }  # fmt: skip
    few = _few_plan(x.rows, weights, out)
    if few is not None:
        sums = few.tiles * few.rows * TILE * segments
        few_product.few_by_matrices[(_programs(weights, few.tiles),)](
            x.codes, x.info, *given, x.rows, first.quads, first.groups, **forms, ROWS=few.rows,
            TILES=few.tiles, ROOM=-(-sums // 1024) * 1024, AHEAD=few.ahead,
            WHOLE=first.groups % (SEGMENT * QUAD) == 0, W=few.warps, num_warps=few.warps,
            **_at_most(few.registers, out), **launch_options(out),
        )  # fmt: skip
        return
    plan = plan_for(x.rows, tiles, segments, limbs)
    across = x.rows if plan.columns == 1 else -(-x.rows // (ROWS * plan.blocks))
    parts = out
    if plan.split:
        parts = out.new_empty(across * tiles * segments * 64 * plan.blocks * plan.columns)
    whole = QUAD if plan.loop and not plan.split else SEGMENT * QUAD
    programs = _programs(weights, plan.tiles if plan.split else plan.warps)
    choosing = 0 if choice is None else -(-x.rows // plan.warps)
    rows_product.rows_by_matrices[(programs + choosing, across)](
        x.codes, x.info, *given, parts, x.rows, first.quads, first.groups, x.codes.shape[1],
        programs, choice.experts if choice else out, choice.shares if choice else out,
        CHOSEN=choice.used if choice else 0, AMONG=first.rows if choice else 0, **forms,
        NT=plan.blocks, COLUMNS=plan.columns, TILES=plan.tiles, SPLIT=plan.split, LOOP=plan.loop,
        WHOLE=first.groups % whole == 0, W=plan.warps, ASM=assembly(out),
        num_warps=plan.warps, **_at_most(plan.registers, out), **launch_options(out),
    )  # fmt: skip


def _size(weights: Sequence[Matrix]) -> tuple[int, int, bool]:
    """Tiles, segments, and whether all matrices are of two limbs."""
    tiles, segments = sum(w.tiles for w in weights), -(-weights[0].quads // SEGMENT)
    return tiles, segments, all(w.form == LIMBS for w in weights)


def _few_plan(rows: int, weights: Sequence[Matrix], tensor: torch.Tensor) -> FewPlan | None:
    """The plan of few rows, where the tensor's device has PTX."""
    return few_plan_for(rows, *_size(weights)) if assembly(tensor) else None


def _programs(weights: Sequence[Matrix], tiles: int) -> int:
    """Programs of `tiles` tiles, each of one form."""
    by_form: dict[object, int] = {}
    for w in weights:
        by_form[w.form] = by_form.get(w.form, 0) + w.tiles
    return sum(-(-count // tiles) for count in by_form.values())


def _at_most(registers: int, tensor: torch.Tensor) -> dict[str, int]:
    """The option of a launch that limits registers of a thread."""
    return {"maxnreg": registers} if registers and tensor.is_cuda else {}


def product(x: torch.Tensor, weight: Matrix, experts: torch.Tensor, used: int) -> torch.Tensor:
    """Row p of the result is matrix experts[p] of a stack times row p // used of x: [P, N].

    experts: int32 [P], P > 0."""
    every, out = experts.view(-1), x.new_empty((experts.numel(), weight.rows))
    # Fours of rows: pointers are aligned alike in all launches.
    step = _MOST_PAIRS // (4 * used) * (4 * used)
    for first in range(0, len(every), step):
        part = slice(first, first + step)
        rows = x[first // used : (first + step) // used].contiguous()
        if isinstance(weight.form, FloatForm):
            float_product_of_stack(rows, weight, every[part], used, out[part])
        else:
            _product_of_stack(as_input(rows), weight, every[part], used, out[part])
    return out


def _product_of_stack(
    x: Input, weight: Matrix, experts: torch.Tensor, used: int, out: torch.Tensor
) -> None:
    rows_product.pairs_by_matrices[(-(-weight.tiles // _PAIR_WARPS), len(experts))](
        x.codes, x.info, weight.addresses, experts, out, used, weight.rows, weight.quads,
        weight.groups, x.codes.shape[1], FORM=weight.form, WHOLE=weight.groups % 16 == 0,
        W=_PAIR_WARPS, ASM=assembly(out), num_warps=_PAIR_WARPS, **launch_options(out),
    )  # fmt: skip


def assembly(tensor: torch.Tensor) -> bool:
    """True where kernels may use PTX: NVIDIA, and not the interpreter."""
    return tensor.is_cuda and torch.version.hip is None
