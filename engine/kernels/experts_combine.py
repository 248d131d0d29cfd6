"""What a mixture adds to the residual: routed experts in router order, then the shared expert.

For few rows programs of `experts_product.down` do it.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,misc,var-annotated"

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from engine.kernels import scalar
from engine.kernels.awaited import NOT_YET, look
from engine.kernels.dependent import launch_options, wait

# Outputs of a program, one a thread.
_BLOCK = 128


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """y = sum over a of shares[r, a] * routed[r, a], plus sigmoid(gate[r]) * shared[r], and where
    it goes: residual[r, c] += streams[r, c] * y[r], or residual[r] += y[r] without `streams`.

    float32: residual [R, C, D] or [R, D], streams [R, C], shares [R, A], gate [R, 1].
    """

    residual: torch.Tensor
    streams: torch.Tensor | None
    shares: torch.Tensor
    gate: torch.Tensor

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Residual, streams (or anything), shares and gate."""
        assert self.residual.is_contiguous()
        streams = self.residual if self.streams is None else self.streams.contiguous()
        return self.residual, streams, self.shares, self.gate

    @property
    def constants(self) -> dict[str, int]:
        """A and C (0 without streams) as kernels take them."""
        count = 0 if self.streams is None else self.residual.shape[1]
        return {"USED": self.shares.shape[1], "COUNT": count}


def combine_into(sums: Sums, routed: torch.Tensor, shared: torch.Tensor) -> None:
    """Adds to the residual. float32: routed [R * A, D], shared [R, D]."""
    rows, width = shared.shape
    if rows:
        combine[(triton.cdiv(width, _BLOCK), rows)](
            *sums.tensors, routed, shared, width, B=_BLOCK, num_warps=4, **sums.constants,
            **launch_options(shared),
        )  # fmt: skip


@triton.jit
def _parts(ROUTED, SHARED, row, d, live, width, USED: tl.constexpr):
    """Bits of a row's products with each of its experts, then the shared one's."""
    found = ()
    for a in tl.static_range(USED):
        at = ROUTED + (row * USED + a) * width + d
        found = found + (tl.load(at, mask=live, other=0.0).to(tl.int32, bitcast=True),)
    own = tl.load(SHARED + row * width + d, mask=live, other=0.0)
    return found + (own.to(tl.int32, bitcast=True),)


@triton.jit
def _awaited_parts(ROUTED, SHARED, row, d, live, width, USED: tl.constexpr, ASM: tl.constexpr):
    """The same when all of them are there; then NOT_YET is."""
    routed = ROUTED.to(tl.pointer_type(tl.int32)) + row * USED * width + d
    shared = SHARED.to(tl.pointer_type(tl.int32)) + row * width + d
    found = ()
    for _ in tl.static_range(USED + 1):
        found = found + (d * 0,)
    missing = 1
    while missing > 0:
        none = d < 0
        words = ()
        for a in tl.static_range(USED + 1):
            word = look(shared if a == USED else routed + a * width, live, 0, ASM)
            words = words + (word,)
            none = none | (word == NOT_YET)
        found = words
        missing = tl.max(none.to(tl.int32), axis=0)
    nothing = tl.full(d.shape, NOT_YET, tl.int32)
    for a in range(USED):
        tl.store(routed + a * width, nothing, mask=live)
    tl.store(shared, nothing, mask=live)
    return found


@triton.jit
def combine_at(RESIDUAL, STREAMS, SHARES, GATE, ROUTED, SHARED, row, d, live, width,
               USED: tl.constexpr, COUNT: tl.constexpr, AWAITED: tl.constexpr,
               ASM: tl.constexpr):  # fmt: skip
    """As `combine_into`, of outputs d of a row. COUNT: streams, or 0. AWAITED: the products are
    still being made, in memory for `awaited` numbers."""
    row = row.to(tl.int64)
    # All loads before the first use: none waits for another.
    logit = tl.load(GATE + row + tl.arange(0, 1))
    shares = ()
    for a in tl.static_range(USED):
        shares = shares + (tl.load(SHARES + row * USED + a),)
    before = ()
    streams = ()
    for c in tl.static_range(max(COUNT, 1)):
        target = RESIDUAL + (row * max(COUNT, 1) + c) * width + d
        before = before + (tl.load(target, mask=live, other=0.0),)
        if COUNT > 0:
            streams = streams + (tl.load(STREAMS + row * COUNT + c),)
    if AWAITED:
        parts = _awaited_parts(ROUTED, SHARED, row, d, live, width, USED, ASM)
    else:
        parts = _parts(ROUTED, SHARED, row, d, live, width, USED)
    y = shares[0] * parts[0].to(tl.float32, bitcast=True)
    for a in tl.static_range(1, USED):
        y = y + shares[a] * parts[a].to(tl.float32, bitcast=True)
    y = y + scalar.sigmoid(logit) * parts[USED].to(tl.float32, bitcast=True)
    if COUNT == 0:
        tl.store(RESIDUAL + row * width + d, before[0] + y, mask=live)
    for c in tl.static_range(COUNT):
        target = RESIDUAL + (row * COUNT + c) * width + d
        tl.store(target, before[c] + streams[c] * y, mask=live)


@triton.jit(
    do_not_specialize=["width"], do_not_specialize_on_alignment=["STREAMS", "SHARES", "GATE"]
)
def combine(RESIDUAL, STREAMS, SHARES, GATE, ROUTED, SHARED, width, USED: tl.constexpr,
            COUNT: tl.constexpr, B: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """As `combine_into`. Grid (outputs / B, rows). COUNT: streams, or 0."""
    d = tl.program_id(0) * B + tl.arange(0, B)
    wait(PDL)
    combine_at(RESIDUAL, STREAMS, SHARES, GATE, ROUTED, SHARED, tl.program_id(1), d, d < width,
               width, USED, COUNT, False, False)  # fmt: skip
