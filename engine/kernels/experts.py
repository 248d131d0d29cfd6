"""Mixture of experts: router, routed experts in router order, shared expert.

Every (row, expert) pair is computed on its own; an expert's matrices are found by their addresses.
Pairs of one expert share a read of its weights, which changes no bit of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from engine.kernels import scalar
from engine.kernels.dependent import launch_options, wait
from engine.kernels.expert_store import StoredMatrix
from engine.kernels.experts_blocks import Blocks, blocks_of
from engine.kernels.experts_combine import combine_into
from engine.kernels.experts_product import down, gate_up
from engine.kernels.experts_route import top
from engine.kernels.form import GROUP, Form
from engine.kernels.inputs import CODES, ROWS, SEGMENT, Input
from engine.kernels.linear import assembly, linear, product, project
from engine.kernels.matrix import Matrix
from engine.models import weights

# Values of a program in kernels that treat every value alone.
_BLOCK = 512
DOWN_WARPS = 4
# Where experts have as many pairs on average, blocks have _HIGH times as many.
_CROWDED = 16
_HIGH = 4
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
    logits, share = project(x, (w.ffn_gate_inp, w.ffn_gate_inp_shexp))
    experts, shares = top(logits, used)
    routed, shared = _products(x, w, experts)
    combine_into(residual, streams, routed, shares, shared, share)


def _products(
    x: Input, w: weights.Experts, experts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What routed experts give for every pair, [R * A, D], and the shared one for every row."""
    routed = (w.ffn_gate_exps, w.ffn_up_exps, w.ffn_down_exps)
    shared = (w.ffn_gate_shexp, w.ffn_up_shexp, w.ffn_down_shexp)
    first = routed[0]
    store = first.store if isinstance(first, StoredMatrix) else None
    blocks = None
    if store is not None or x.rows > 1:
        count = len(first.addresses)
        high = 1 if experts.numel() < _CROWDED * count else _HIGH
        blocks = blocks_of(experts, count, ROWS * high)
    rounds = 1
    if store is not None and blocks is not None:
        store.begin(blocks)
        rounds = store.rounds_for(experts.numel())
    integers = _integers(*routed), _integers(*shared)
    launches = None
    if any(integers):
        launches = _Launches(x, experts, blocks, routed if integers[0] else None,
                             shared if integers[1] else None, rounds)  # fmt: skip
    for index in range(rounds):
        if store is not None:
            store.fetch(index)
        if launches is not None:
            launches.round(index)
    return (
        launches.routed if launches is not None and integers[0] else _each(x, experts, *routed),
        launches.shared if launches is not None and integers[1] else _each(x, None, *shared),
    )


def _integers(*matrices: Matrix) -> bool:
    return all(isinstance(m.form, Form) for m in matrices)


Three = tuple[Matrix, Matrix, Matrix]


class _Launches:
    """Products of integer matrices: of routed experts, of the shared one, or of both at once."""

    def __init__(
        self, x: Input, experts: torch.Tensor, blocks: Blocks | None, routed: Three | None,
        shared: Three | None, rounds: int,
    ) -> None:  # fmt: skip
        self._x, self._rounds, self._used = x, rounds, experts.shape[1]
        width = x.values.shape[1]
        device = x.values.device
        self._alone = blocks is None
        self._high = 1 if blocks is None else blocks.size // ROWS
        self._experts, self._pairs = (
            (experts, experts) if blocks is None else (blocks.experts, blocks.pairs)
        )
        self._blocks = self._experts.numel() if routed else 0
        self._shared_blocks = -(-x.rows // (ROWS * self._high)) if shared else 0
        # A launch needs the arguments of what it leaves out.
        either = routed or shared
        assert either is not None
        self._apart = not isinstance(either[0], StoredMatrix)
        self._of_routed, self._of_shared = routed or either, shared or either
        inner = max(m[2].groups for m in (self._of_routed, self._of_shared))
        self._step = -(-inner * GROUP // SEGMENT) * (SEGMENT // GROUP)
        high = (self._blocks + self._shared_blocks) * self._high
        self._codes = torch.empty((high, self._step, CODES), dtype=torch.int8, device=device)
        self._info = torch.empty((high, self._step, ROWS), dtype=torch.int64, device=device)
        self.routed = torch.empty((experts.numel(), width), dtype=torch.float32, device=device)
        self.shared = torch.empty((x.rows, width), dtype=torch.float32, device=device)

    def round(self, index: int) -> None:
        """All pairs whose expert comes in this round, and in the first one the shared expert."""
        x, experts, pairs = self._x, self._experts, self._pairs
        (gate, up, last), (shared_gate, shared_up, shared_last) = self._of_routed, self._of_shared
        turns = gate.store.rounds if isinstance(gate, StoredMatrix) else experts
        plan = plan_for(self._alone, self._high, gate.groups)
        common = {
            "NT": self._high, "ALONE": self._alone, "APART": self._apart,
            "IN_ROUNDS": self._rounds > 1, "ASM": assembly(x.values), **launch_options(x.values),
        }  # fmt: skip
        count, shared_count = last.groups, shared_last.groups
        programs, shared_programs = (
            n if a.form == b.form else -(-n * 2 // plan.warps)
            for n, a, b in ((count, gate, up), (shared_count, shared_gate, shared_up))
        )
        all_shared = self._shared_blocks * shared_programs
        gate_up[(all_shared + self._blocks * programs,)](
            x.codes, x.info, self._where(gate), self._where(up), experts, pairs, turns,
            shared_gate.record, shared_up.record, self._codes, self._info, _apart(gate),
            _apart(up), x.rows, x.codes.shape[1], gate.quads, gate.groups, count, shared_count,
            self._blocks, index, self._step, programs, shared_programs, all_shared,
            USED=self._used, GATE_FORM=gate.form, UP_FORM=up.form,
            SHARED_GATE_FORM=shared_gate.form, SHARED_UP_FORM=shared_up.form,
            SEGMENTS=plan.segments, WHOLE=gate.groups % 16 == 0, W=plan.warps,
            num_warps=plan.warps, **_most(plan.registers, x.values), **common,
        )  # fmt: skip
        each, fits, shared_fits = plan.tiles, _fitting(last), _fitting(shared_last)
        programs, shared_programs = (
            -(-last.tiles // (DOWN_WARPS * tiles)) for tiles in (each, 1)
        )
        all_shared = self._shared_blocks * shared_programs
        down[(all_shared + self._blocks * programs,)](
            self._codes, self._info, self._where(last), experts, pairs, turns, shared_last.record,
            self.routed, self.shared, _apart(last), x.rows, self.routed.shape[0], self._step,
            last.quads, last.groups, shared_last.quads, shared_last.groups, last.tiles, last.rows,
            self._blocks, index, each, programs, shared_programs, all_shared, FORM=last.form,
            SHARED_FORM=shared_last.form, QUADS=fits, SHARED_QUADS=shared_fits,
            WHOLE=last.groups % (4 if fits else 16) == 0,
            SHARED_WHOLE=shared_last.groups % (4 if shared_fits else 16) == 0,
            num_warps=DOWN_WARPS, **_most(plan.down_registers, x.values), **common,
        )  # fmt: skip

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
    two warps share them, or 0. registers: most of a thread of both kernels. tiles: of a warp of
    down."""

    segments: int
    warps: int
    registers: int
    down_registers: int
    tiles: int


def plan_for(alone: bool, high: int, groups: int) -> Plan:
    """The plan for one row, or for blocks of 8 * high pairs."""
    segments = -(-groups // (SEGMENT // GROUP))
    if alone and 1 < segments <= 8:
        return Plan(segments, 8, 128, 128, 1)
    if high == 1:
        return Plan(0, 4, 80, 128, 1 if alone else 4)
    return Plan(0, 4, 168, 168, 4)


def _each(
    x: Input, experts: torch.Tensor | None, gate: Matrix, up: Matrix, last: Matrix
) -> torch.Tensor:
    """down(silu(gate.x) * up.x) of all pairs, or of all rows, operator by operator."""
    if experts is None:
        return linear(_gated(linear(x, gate), linear(x, up)), last)
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
