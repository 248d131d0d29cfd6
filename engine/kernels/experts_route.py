"""The experts of a row: the most probable ones by softmax, and the share of each.

The sum over all probabilities follows `engine/reference/lanes.py`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels import lanes, scalar
from engine.kernels.dependent import launch_options, wait


def top(logits: torch.Tensor, used: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `used` most probable experts of each row, int32 [R, A]; their shares, float32 [R, A].

    Softmax over all experts, best first (equal: the lowest index), shares divided by their sum.
    logits: float32 [R, E], what the router gave.
    """
    rows, count = logits.shape
    experts = torch.empty((rows, used), dtype=torch.int32, device=logits.device)
    shares = torch.empty((rows, used), dtype=torch.float32, device=logits.device)
    if rows:
        top_experts[(rows,)](
            logits, experts, shares, COUNT=count, USED=used,
            RANKS=triton.next_power_of_2(used), WIDTH=max(triton.next_power_of_2(count), 32),
            FUSED=logits.is_cuda, num_warps=1, **launch_options(logits),
        )  # fmt: skip
    return experts, shares


@triton.jit
def ordered_total(LOGITS, best, COUNT: tl.constexpr):
    """The sum of exp(x - best) over the COUNT logits of a row, a float32 number.

    A number, not a tensor of one, and from exponentials of its own: the compiler would arrange the
    row's other tensors like those that meet in the tree, which every thread has whole.
    """
    GROUPS: tl.constexpr = (COUNT + 31) // 32
    lane = tl.arange(0, 32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([32], tl.float32)
    for i in tl.static_range(GROUPS):
        live = i * 32 + lane < COUNT
        x = tl.load(LOGITS + i * 32 + lane, mask=live, other=float("-inf"))
        # Behind the last expert stands -inf, whose exponential is 0, unless `best` is no number.
        acc = acc + tl.where(live, scalar.exp(x - best), 0.0)
        if i % 16 == 15 or i == GROUPS - 1:
            total = total + lanes.tree(acc, 1)
            acc = tl.zeros([32], tl.float32)
    return tl.max(total, axis=0)


@triton.jit
def quotient(x, by, FUSED: tl.constexpr):
    """Numbers from 0 to 1 divided by `by`, 1 or more: the bits of IEEE division. FUSED: without its
    branches, by residuals that a fused multiply-add gives exactly (Markstein's theorem)."""
    if not FUSED:
        q = tl.div_rn(x, by)
    else:
        y = tl.div_rn(1.0, by)
        q = x * y
        q = tl.fma(tl.fma(-q, by, x), y, q)
        q = tl.fma(tl.fma(-q, by, x), y, q)
        # A residual of numbers below 2**-90 may underflow. Bits order as the numbers do.
        bits = x.to(tl.int32, bitcast=True)
        if tl.min(tl.where(bits > 0, bits, 0x3F800000), axis=0) < 0x12800000:
            q = tl.div_rn(x, by)
    return q


@triton.jit
def top_experts(LOGITS, EXPERTS, SHARES, COUNT: tl.constexpr, USED: tl.constexpr,
                RANKS: tl.constexpr, WIDTH: tl.constexpr, FUSED: tl.constexpr,
                PDL: tl.constexpr):  # fmt: skip
    """As `top`, one row a program of one warp: a rank costs two reductions of integers over it.

    RANKS, WIDTH: powers of two that hold USED and COUNT.
    """
    LOGITS += tl.program_id(0).to(tl.int64) * COUNT
    expert = tl.arange(0, WIDTH)
    live = expert < COUNT
    wait(PDL)
    x = tl.load(LOGITS + expert, mask=live, other=float("-inf"))
    best = tl.max(x, axis=0)
    total = ordered_total(LOGITS, best, COUNT)
    x = tl.where(live, scalar.exp(x - best), 0.0)
    # Of numbers from 0 to 1, bits order as the numbers do. Where one probability is no number none
    # is: then all keys are equal, and the first expert counts as the best, again and again.
    sound = total == total
    keys = tl.where(sound, quotient(x, total, FUSED).to(tl.int32, bitcast=True), 0)
    keys = tl.where(live, keys, -1)
    rank = tl.arange(0, RANKS)
    experts = tl.zeros([RANKS], tl.int32)
    values = tl.zeros([RANKS], tl.int32)
    # Nothing, unless there is no number.
    chosen = total - total
    for a in range(USED):
        key = tl.max(keys, axis=0)
        first = tl.min(tl.where(keys == key, expert, WIDTH), axis=0)
        keys = tl.where(expert == first, -1, keys)
        experts = tl.where(rank == a, first, experts)
        values = tl.where(rank == a, key, values)
        chosen = chosen + key.to(tl.float32, bitcast=True)
    at = tl.program_id(0).to(tl.int64) * USED + rank
    tl.store(EXPERTS + at, tl.where(sound, experts, 0), mask=rank < USED)
    shares = tl.div_rn(values.to(tl.float32, bitcast=True), chosen)
    tl.store(SHARES + at, shares, mask=rank < USED)
