"""What a mixture adds to the residual: routed experts in router order, then the shared expert."""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,misc,var-annotated"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels import scalar
from engine.kernels.dependent import launch_options, wait

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
    d = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.program_id(1).to(tl.int64)
    live = d < width
    wait(PDL)
    # All loads before the first use: none waits for another.
    products = ()
    shares = ()
    for a in tl.static_range(USED):
        z = tl.load(ROUTED + (row * USED + a) * width + d, mask=live, other=0.0)
        products = products + (z,)
        shares = shares + (tl.load(SHARES + row * USED + a),)
    own = tl.load(SHARED + row * width + d, mask=live, other=0.0)
    logit = tl.load(SCALAR + row + tl.arange(0, 1))
    before = ()
    streams = ()
    for c in tl.static_range(max(COUNT, 1)):
        target = RESIDUAL + (row * max(COUNT, 1) + c) * width + d
        before = before + (tl.load(target, mask=live, other=0.0),)
        if COUNT > 0:
            streams = streams + (tl.load(STREAMS + row * COUNT + c),)
    y = shares[0] * products[0]
    for a in tl.static_range(1, USED):
        y = y + shares[a] * products[a]
    y = y + scalar.sigmoid(logit) * own
    if COUNT == 0:
        tl.store(RESIDUAL + row * width + d, before[0] + y, mask=live)
    for c in tl.static_range(COUNT):
        target = RESIDUAL + (row * COUNT + c) * width + d
        tl.store(target, before[c] + streams[c] * y, mask=live)
