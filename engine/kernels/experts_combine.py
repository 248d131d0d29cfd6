"""What a mixture adds to the residual: routed experts in router order, then the shared expert."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels import scalar
from engine.kernels.dependent import announce, launch_options, wait

# Outputs of a program, one a thread.
_BLOCK = 128


def combine_into(
    residual: torch.Tensor,
    streams: torch.Tensor | None,
    routed: torch.Tensor,
    shares: torch.Tensor,
    shared: torch.Tensor,
    scalar_of: torch.Tensor,
) -> None:
    """y = sum over a of shares[r, a] * routed[r, a], plus sigmoid(scalar_of[r]) * shared[r].

    residual[r, c] += streams[r, c] * y[r], or residual[r] += y[r] without `streams`. float32:
    residual [R, C, D] or [R, D], streams [R, C], routed [R * A, D], shares [R, A], shared [R, D],
    scalar_of [R, 1].
    """
    rows, used = shares.shape
    width = shared.shape[1]
    assert residual.is_contiguous()
    if rows:
        combine[(triton.cdiv(width, _BLOCK), rows)](
            residual, residual if streams is None else streams.contiguous(), routed, shares,
            shared, scalar_of, width, USED=used, COUNT=0 if streams is None else residual.shape[1],
            B=_BLOCK, num_warps=4, **launch_options(residual),
        )  # fmt: skip


@triton.jit(
    do_not_specialize=["width"], do_not_specialize_on_alignment=["STREAMS", "SHARES", "SCALAR"]
)
def combine(RESIDUAL, STREAMS, ROUTED, SHARES, SHARED, SCALAR, width, USED: tl.constexpr,
            COUNT: tl.constexpr, B: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """As `combine_into`. Grid (outputs / B, rows). COUNT: streams, or 0."""
    announce(PDL)
    d = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.program_id(1).to(tl.int64)
    live = d < width
    wait(PDL)
    y = tl.zeros([B], tl.float32)
    for a in tl.static_range(USED):
        z = tl.load(ROUTED + (row * USED + a) * width + d, mask=live, other=0.0)
        part = tl.load(SHARES + row * USED + a) * z
        y = part if a == 0 else y + part
    share = scalar.sigmoid(tl.load(SCALAR + row + tl.arange(0, 1)))
    y = y + share * tl.load(SHARED + row * width + d, mask=live, other=0.0)
    if COUNT == 0:
        target = RESIDUAL + row * width + d
        tl.store(target, tl.load(target, mask=live, other=0.0) + y, mask=live)
    for c in tl.static_range(COUNT):
        target = RESIDUAL + (row * COUNT + c) * width + d
        part = tl.load(STREAMS + row * COUNT + c) * y
        tl.store(target, tl.load(target, mask=live, other=0.0) + part, mask=live)
