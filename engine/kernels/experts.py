"""Mixture of experts: router, routed experts in router order, shared expert.

Every (row, expert) pair is computed on its own; an expert's matrices are found by their addresses.
The sums over a router's probabilities follow `engine/reference/lanes.py`, the weighted outputs of a
row's experts are added one after the other in router order.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels import lanes, scalar
from engine.kernels.linear import linear, product, project
from engine.kernels.matrix import Matrix

# Values of a program in kernels that treat every value alone.
_BLOCK = 512


def route(x: torch.Tensor, weight: Matrix, used: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `used` most probable experts of each row, int32 [R, A]; their weights, float32 [R, A].

    Softmax over all experts, best first (equal: the lowest index), weights divided by their sum.
    x: float32 [R, D].
    """
    logits = linear(x, weight)
    rows, count = logits.shape
    experts = torch.empty((rows, used), dtype=torch.int32, device=x.device)
    weights = torch.empty((rows, used), dtype=torch.float32, device=x.device)
    if rows:
        levels = (-(-count // 512) - 1).bit_length()
        top_experts[(rows,)](
            logits, experts, weights, COUNT=count, USED=used,
            LEVELS=levels, num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    return experts, weights


def mixture(
    x: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
) -> torch.Tensor:
    """Sum over a row's experts, in router order, of weight * down(silu(gate.x) * up.x): [R, D]."""
    if not x.shape[0]:
        return torch.empty((0, down.rows), dtype=torch.float32, device=x.device)
    used = experts.shape[1]
    g = product(x, gate, experts, used)
    u = product(x, up, experts, used)
    z = product(_gated(g, u), down, experts, 1)
    return _weighted(z, weights)


def shared_expert(
    x: torch.Tensor, gate: Matrix, up: Matrix, down: Matrix, scalar: Matrix
) -> torch.Tensor:
    """sigmoid(scalar.x) * down(silu(gate.x) * up.x): float32 [R, D]."""
    z = linear(_gated(*project(x, (gate, up))), down)
    return _weighted(z, linear(x, scalar), sigmoid=True)


def _gated(g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(g)
    if g.numel():
        gated[(triton.cdiv(g.numel(), _BLOCK),)](
            g, u, out, g.numel(), B=_BLOCK, enable_fp_fusion=False
        )
    return out


def _weighted(z: torch.Tensor, weights: torch.Tensor, sigmoid: bool = False) -> torch.Tensor:
    rows, used = weights.shape
    width = z.shape[1]
    out = torch.empty((rows, width), dtype=torch.float32, device=z.device)
    if rows:
        weighted[(triton.cdiv(width, _BLOCK), rows)](
            z, weights, out, D=width, USED=used, SIGMOID=sigmoid, B=_BLOCK,
            enable_fp_fusion=False,
        )  # fmt: skip
    return out


@triton.jit
def top_experts(LOGITS, EXPERTS, WEIGHTS, COUNT: tl.constexpr, USED: tl.constexpr,
                LEVELS: tl.constexpr):  # fmt: skip
    """As `route`, from the router's outputs, float32 [R, COUNT]. Grid (rows,)."""
    S: tl.constexpr = 1 << LEVELS
    row = tl.program_id(0).to(tl.int64)
    # Axes: segment, sixteen steps, lane.
    e = (
        tl.arange(0, S)[:, None, None] * 512
        + tl.arange(0, 16)[None, :, None] * 32
        + tl.arange(0, 32)[None, None, :]
    )
    there = e < COUNT
    x = tl.load(LOGITS + row * COUNT + e, mask=there, other=float("-inf"))
    top = tl.max(tl.reshape(x, [S * 512]), axis=0)
    p = tl.where(there, scalar.exp(x - top), 0.0)
    steps = lanes.apart(tl.reshape(tl.permute(p, (0, 2, 1)), [S * 32, 16]), S * 32, 4)
    acc = tl.zeros([S * 32], tl.float32)
    for i in tl.static_range(16):
        # Which of the sixteen comes next: its number with the bits in reverse order.
        acc = acc + tl.reshape(
            steps[(i & 1) << 3 | (i & 2) << 1 | (i & 4) >> 1 | (i & 8) >> 3], [S * 32]
        )
    parts = tl.reshape(lanes.tree(acc, S), [S, 1])
    total = lanes.add_in_order(tl.zeros([1], tl.float32), parts, 1, LEVELS)
    p, total = tl.broadcast(tl.reshape(p, [S * 512]), total)
    p = tl.div_rn(p, total)
    e = tl.reshape(e, [S * 512])
    p = tl.where(e < COUNT, p, -2.0)
    chosen = tl.zeros([1], tl.float32)
    values = ()
    at = row * USED + tl.arange(0, 1)
    for rank in tl.static_range(USED):
        best = tl.max(p, axis=0)
        index = tl.min(tl.where(p == best, e, COUNT), axis=0)
        # Where probabilities are no numbers, the first expert counts as the best.
        index = tl.where(index < COUNT, index, 0)
        # A sum of one number and zeros, of bits: also a NaN comes through.
        bits = tl.where(e == index, p.to(tl.int32, bitcast=True), 0)
        value = (tl.sum(bits, axis=0) + tl.zeros([1], tl.int32)).to(tl.float32, bitcast=True)
        tl.store(EXPERTS + at + rank, index + tl.zeros([1], tl.int32))
        chosen = chosen + value
        values = values + (value,)
        p = tl.where(e == index, -1.0, p)
    for rank in tl.static_range(USED):
        tl.store(WEIGHTS + at + rank, tl.div_rn(values[rank], chosen))


@triton.jit
def gated(G, U, OUT, count, B: tl.constexpr):
    """OUT = silu(G) * U."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    g = tl.load(G + at, mask=at < count, other=0.0)
    u = tl.load(U + at, mask=at < count, other=0.0)
    tl.store(OUT + at, scalar.silu(g) * u, mask=at < count)


@triton.jit
def weighted(Z, WEIGHTS, OUT, D: tl.constexpr, USED: tl.constexpr, SIGMOID: tl.constexpr,
             B: tl.constexpr):  # fmt: skip
    """OUT[row] = WEIGHTS[row, 0] * Z[row, 0] + WEIGHTS[row, 1] * Z[row, 1] + ..., in this order."""
    d = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.program_id(1).to(tl.int64)
    total = tl.zeros([B], tl.float32)
    for a in tl.static_range(USED):
        w = tl.load(WEIGHTS + row * USED + a + tl.arange(0, 1))
        if SIGMOID:
            w = scalar.sigmoid(w)
        z = tl.load(Z + (row * USED + a) * D + d, mask=d < D, other=0.0)
        total = w * z if a == 0 else total + w * z
    tl.store(OUT + row * D + d, total, mask=d < D)
