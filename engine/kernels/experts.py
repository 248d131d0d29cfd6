"""Mixture of experts: router, routed experts in router order, shared expert.

Every (row, expert) pair is computed on its own; an expert's matrices are found by their addresses.
Pairs of one expert share a read of its weights, which changes no bit of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from engine.kernels import scalar
from engine.kernels.awaited import room
from engine.kernels.dependent import launch_options, wait
from engine.kernels.expert_store import StoredMatrix
from engine.kernels.experts_blocks import Blocks, blocks_of
from engine.kernels.experts_combine import Sums, combine_into
from engine.kernels.experts_many import TILES
from engine.kernels.experts_product import down, gate_up
from engine.kernels.experts_route import Choice, room_for
from engine.kernels.form import GROUP, Form
from engine.kernels.inputs import CODES, ROWS, SEGMENT, Input
from engine.kernels.linear import assembly, linear, product, project
from engine.kernels.matrix import Matrix
from engine.models import weights

# Values of a program in kernels that treat every value alone.
_BLOCK = 512
DOWN_WARPS = 4
# Up to how many pairs none shares a read of weights: few have their expert in common.
_FEW = 80
# Where experts have as many pairs on average, blocks have _HIGH times as many.
_CROWDED = 16
_HIGH = 2
# Most words of a tile that a thread of down loads at once.
_FITTING = 64


def mixture_into(
    residual: torch.Tensor,
    streams: torch.Tensor | None,
    x: Input,
    w: weights.Experts,
    used: int,
) -> None:
    """Adds routed and shared experts to the residual, in place.

    y = routed experts in router order, then the shared expert. float32 residual [R, C, D] +=
    streams [R, C] (x) y, or [R, D] += y without `streams`.
    """
    if not x.rows:
        return
    own = (w.ffn_gate_shexp, w.ffn_up_shexp) if _integers(w.ffn_gate_shexp, w.ffn_up_shexp) else ()
    choice = room_for(x.rows, used, x.values.device)
    _, share, *made = project(x, (w.ffn_gate_inp, w.ffn_gate_inp_shexp, *own), choice)
    _add(Sums(residual, streams, choice.shares, share), x, w, choice, made)


def _add(
    sums: Sums, x: Input, w: weights.Experts, choice: Choice, made: Sequence[torch.Tensor]
) -> None:
    """Adds what routed experts give for every pair, and the shared one for every row.

    made: gate and up of the shared expert, float32 [R, I], if they are integers."""
    experts = choice.experts
    routed = (w.ffn_gate_exps, w.ffn_up_exps, w.ffn_down_exps)
    last = w.ffn_down_shexp
    first = routed[0]
    store = first.store if isinstance(first, StoredMatrix) else None
    blocks = None
    if store is not None or experts.numel() > _FEW:
        count = len(first.addresses)
        high = 1 if experts.numel() < _CROWDED * count else _HIGH
        blocks = blocks_of(experts, count, ROWS * high)
    rounds = 1
    if store is not None and blocks is not None:
        # Most experts have one block then, which reads their weights once. Float kernels read by
        # pairs.
        direct = blocks.size == ROWS and _integers(*routed)
        store.begin(blocks, direct)
        rounds = store.rounds_for(experts.numel(), direct)
    together = bool(made) and _integers(last)
    launches = None
    if _integers(*routed):
        own = (made[0], made[1], last) if together else None
        launches = _Launches(x, choice, blocks, routed, own, rounds, sums)
    for index in range(rounds):
        if store is not None:
            store.fetch(index)
        if launches is not None:
            launches.round(index)
    if launches is not None and together:
        if not launches.combine:
            combine_into(sums, launches.routed, launches.shared)
        return
    g, u = made or (linear(x, w.ffn_gate_shexp), linear(x, w.ffn_up_shexp))
    shared = linear(_gated(g, u), last)
    each = launches.routed if launches is not None else _each(x, experts, *routed)
    combine_into(sums, each, shared)


def _integers(*matrices: Matrix) -> bool:
    return all(isinstance(m.form, Form) for m in matrices)


class _Launches:
    """Products of routed experts, all of integers, and of the shared one with them or not: its
    products with gate and up, and its down. `combine`: of few rows also their sums."""

    def __init__(
        self, x: Input, choice: Choice, blocks: Blocks | None,
        routed: tuple[Matrix, Matrix, Matrix],
        shared: tuple[torch.Tensor, torch.Tensor, Matrix] | None, rounds: int, sums: Sums,
    ) -> None:  # fmt: skip
        experts = choice.experts
        self._sums = sums
        self._x, self._rounds, self._used, self._routed = x, rounds, choice.used, routed
        width = x.values.shape[1]
        device = x.values.device
        self._alone = blocks is None
        self._high = 1 if blocks is None else blocks.size // ROWS
        self._experts, self._pairs = (
            (experts, experts) if blocks is None else (blocks.experts, blocks.pairs)
        )
        self._blocks = self._experts.numel()
        self._shared_blocks = -(-x.rows // (ROWS * self._high)) if shared else 0
        self._apart = not isinstance(routed[0], StoredMatrix)
        # A launch needs the arguments of what it leaves out.
        self._own = shared or (x.values, x.values, routed[2])
        inner = max(routed[2].groups, self._own[2].groups)
        self._step = -(-inner * GROUP // SEGMENT) * (SEGMENT // GROUP)
        high = (self._blocks + self._shared_blocks) * self._high
        self._codes = torch.empty((high, self._step, CODES), dtype=torch.int8, device=device)
        self._info = torch.empty((high, self._step, ROWS), dtype=torch.int64, device=device)
        few = self._high == 1 and x.rows <= 2 * ROWS and rounds == 1
        self.combine = bool(shared) and few
        pairs = experts.numel()
        if self.combine:
            kind = torch.float32
            self.routed = room(f"routed {x.rows}", pairs * width, kind, device).view(pairs, width)
            self.shared = room(f"shared {x.rows}", x.rows * width, kind, device).view(-1, width)
        else:
            self.routed = torch.empty((pairs, width), dtype=torch.float32, device=device)
            self.shared = torch.empty((x.rows, width), dtype=torch.float32, device=device)

    def round(self, index: int) -> None:
        """All pairs whose expert comes in this round, and in the first one the shared expert."""
        x, experts, pairs = self._x, self._experts, self._pairs
        (gate, up, last), (own_gate, own_up, own_last) = self._routed, self._own
        turns = gate.store.rounds if isinstance(gate, StoredMatrix) else experts
        plan = plan_for(self._alone, x.rows, self._high, gate.groups)
        common = {
            "NT": self._high, "ALONE": self._alone, "APART": self._apart,
            "IN_ROUNDS": self._rounds > 1, "ASM": assembly(x.values), **launch_options(x.values),
        }  # fmt: skip
        if self._high > 1:
            programs = -(-last.groups // plan.warps)
        else:
            programs = last.groups if gate.form == up.form else -(-last.groups * 2 // plan.warps)
        own_programs = -(-own_last.groups // plan.warps)
        all_shared = self._shared_blocks * self._high * own_programs
        gate_up[(all_shared + self._blocks * programs,)](
            x.codes, x.info, self._where(gate), self._where(up), experts, pairs, turns, own_gate,
            own_up, self._codes, self._info, _apart(gate), _apart(up), x.rows, x.codes.shape[1],
            gate.quads, gate.groups, last.groups, own_last.columns, own_last.groups, self._blocks,
            index, self._step, programs, own_programs, all_shared, USED=self._used,
            GATE_FORM=gate.form, UP_FORM=up.form, SEGMENTS=plan.segments, WHOLE=self._whole(gate),
            W=plan.warps, num_warps=plan.warps, **_most(plan.registers, x.values), **common,
        )  # fmt: skip
        each, fits, own_fits = plan.tiles, _fitting(last), _fitting(own_last)
        programs, own_programs = (
            -(-last.tiles // (DOWN_WARPS * tiles))
            for tiles in (each, 1 if self._high == 1 else each)
        )
        all_shared = self._shared_blocks * own_programs
        summing = x.rows * -(-last.rows // (32 * DOWN_WARPS)) if self.combine else 0
        down[(all_shared + self._blocks * programs + summing,)](
            self._codes, self._info, self._where(last), experts, pairs, turns, own_last.record,
            self.routed, self.shared, *self._sums.tensors, _apart(last), x.rows,
            self.routed.shape[0], self._step, last.quads, last.groups, own_last.quads,
            own_last.groups, last.tiles, last.rows, self._blocks, index, each, programs,
            own_programs, all_shared, FORM=last.form,
            SHARED_FORM=own_last.form, ONE=x.rows == 1, QUADS=fits, SHARED_QUADS=own_fits,
            WHOLE=self._whole(last, fits), SHARED_WHOLE=self._whole(own_last, own_fits),
            num_warps=DOWN_WARPS, **_most(plan.registers, x.values), **common,
            **(self._sums.constants if self.combine else {"USED": 0, "COUNT": 0}),
        )  # fmt: skip

    def _whole(self, matrix: Matrix, fits: int = 0) -> bool:
        """Whether what a kernel takes at once is whole everywhere: four groups or 16."""
        return matrix.groups % (4 if fits or self._high > 1 else 16) == 0

    def _where(self, stack: Matrix) -> torch.Tensor:
        return stack.record if self._apart else stack.addresses


def _most(registers: int, values: torch.Tensor) -> dict[str, int]:
    return {"maxnreg": registers} if registers and assembly(values) else {}


def _apart(stack: Matrix) -> int:
    """Words from one matrix of a stack to the next."""
    return stack.record.stride(0) * stack.record.element_size() // 4


def _fitting(last: Matrix) -> int:
    """Quads of a tile if a thread can hold its words at once, or 0."""
    form = last.form
    assert isinstance(form, Form)
    words = form.codes + form.low + form.numbers + form.scales
    return last.quads if last.quads * words <= _FITTING else 0


@dataclass(frozen=True, slots=True)
class Plan:
    """How gate and up spread over the chip; no number depends on it. segments: of the inputs, where
    two warps share them, or 0. registers: most of a thread. tiles: of a warp of down."""

    segments: int
    warps: int
    registers: int
    tiles: int


def plan_for(alone: bool, rows: int, high: int, groups: int) -> Plan:
    """The plan for pairs alone or in blocks of 8 * high."""
    segments = -(-groups // (SEGMENT // GROUP))
    if rows == 1 and alone and 1 < segments <= 8:
        return Plan(segments, 8, 128, 1)
    return Plan(0, 4, 128 if high == 1 else 168, 1 if rows == 1 and alone else TILES.value)


def _each(x: Input, experts: torch.Tensor, gate: Matrix, up: Matrix, last: Matrix) -> torch.Tensor:
    """down(silu(gate.x) * up.x) of all pairs, operator by operator."""
    used = experts.shape[1]
    g, u = product(x.values, gate, experts, used), product(x.values, up, experts, used)
    return product(_gated(g, u), last, experts, 1)


def _gated(g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(g)
    gated[(triton.cdiv(g.numel(), _BLOCK),)](
        g, u, out, g.numel(), B=_BLOCK, **launch_options(g)
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["count"])
def gated(G, U, OUT, count, B: tl.constexpr, PDL: tl.constexpr):
    """OUT = silu(G) * U."""
    wait(PDL)
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    g = tl.load(G + at, mask=at < count, other=0.0)
    u = tl.load(U + at, mask=at < count, other=0.0)
    tl.store(OUT + at, scalar.silu(g) * u, mask=at < count)
