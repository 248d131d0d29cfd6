"""The experts of a row: the most probable ones by softmax, and the share of each.

The sum over all probabilities follows `engine/reference/lanes.py`.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,misc,var-annotated"

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
            RANKS=triton.next_power_of_2(used), FUSED=logits.is_cuda, num_warps=1,
            **launch_options(logits),
        )  # fmt: skip
    return experts, shares


@triton.jit
def _largest(parts, COUNT: tl.constexpr):
    """The largest of COUNT tensors, element by element."""
    found = parts[0]
    for i in tl.static_range(1, COUNT):
        found = tl.maximum(found, parts[i])
    return found


@triton.jit
def quotients(parts, by, COUNT: tl.constexpr, FUSED: tl.constexpr):
    """Numbers from 0 to 1, COUNT tensors, divided by `by`, 1 or more: the bits of IEEE division.
    FUSED: without its branches, by residuals that a fused multiply-add gives exactly (Markstein's
    theorem)."""
    found = ()
    if not FUSED:
        for i in tl.static_range(COUNT):
            found = found + (tl.div_rn(parts[i], by),)
    else:
        y = tl.div_rn(1.0, by)
        # Bits order as the numbers do; 0 is exact.
        least = tl.full(parts[0].shape, 0x3F800000, tl.int32)
        for i in tl.static_range(COUNT):
            x = parts[i]
            q = x * y
            q = tl.fma(tl.fma(-q, by, x), y, q)
            found = found + (tl.fma(tl.fma(-q, by, x), y, q),)
            bits = x.to(tl.int32, bitcast=True)
            least = tl.minimum(least, tl.where(bits > 0, bits, 0x3F800000))
        # A residual of numbers below 2**-90 may underflow.
        if tl.min(least, axis=0) < 0x12800000:
            exact = ()
            for i in tl.static_range(COUNT):
                exact = exact + (tl.div_rn(parts[i], by),)
            found = exact
    return found


@triton.jit
def top_experts(LOGITS, EXPERTS, SHARES, COUNT: tl.constexpr, USED: tl.constexpr,
                RANKS: tl.constexpr, FUSED: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """As `top`, one row a program of one warp: a rank costs two reductions of integers over it.

    RANKS: a power of two that holds USED. A thread has every 32nd expert, a tensor each, as the
    sum's order has it.
    """
    GROUPS: tl.constexpr = (COUNT + 31) // 32
    LOGITS += tl.program_id(0).to(tl.int64) * COUNT
    lane = tl.arange(0, 32)
    wait(PDL)
    logits = ()
    for i in tl.static_range(GROUPS):
        at = i * 32 + lane
        logits = logits + (tl.load(LOGITS + at, mask=at < COUNT, other=float("-inf")),)
    best = tl.max(_largest(logits, GROUPS), axis=0)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([32], tl.float32)
    parts = ()
    for i in tl.static_range(GROUPS):
        # Behind the last expert stands -inf, whose exponential is 0, unless `best` is no number.
        part = tl.where(i * 32 + lane < COUNT, scalar.exp(logits[i] - best), 0.0)
        parts = parts + (part,)
        acc = acc + part
        if i % 16 == 15 or i == GROUPS - 1:
            total = total + lanes.tree(acc, 1)
            acc = tl.zeros([32], tl.float32)
    # A number, not a tensor of one: the compiler would arrange the row's other tensors like it.
    total = tl.max(total, axis=0)
    # Of numbers from 0 to 1, bits order as the numbers do. Where one probability is no number none
    # is: then all keys are equal, and the first expert counts as the best, again and again.
    sound = total == total
    shares = quotients(parts, total, GROUPS, FUSED)
    keys = ()
    for i in tl.static_range(GROUPS):
        bits = tl.where(sound, shares[i].to(tl.int32, bitcast=True), 0)
        keys = keys + (tl.where(i * 32 + lane < COUNT, bits, -1),)
    rank = tl.arange(0, RANKS)
    experts = tl.zeros([RANKS], tl.int32)
    values = tl.zeros([RANKS], tl.int32)
    # Nothing, unless there is no number.
    chosen = total - total
    for a in range(USED):
        key = tl.max(_largest(keys, GROUPS), axis=0)
        own = tl.full([32], GROUPS * 32, tl.int32)
        for i in tl.static_range(GROUPS):
            own = tl.where(keys[GROUPS - 1 - i] == key, (GROUPS - 1 - i) * 32 + lane, own)
        first = tl.min(own, axis=0)
        left = ()
        for i in tl.static_range(GROUPS):
            left = left + (tl.where(i * 32 + lane == first, -1, keys[i]),)
        keys = left
        experts = tl.where(rank == a, first, experts)
        values = tl.where(rank == a, key, values)
        chosen = chosen + key.to(tl.float32, bitcast=True)
    at = tl.program_id(0).to(tl.int64) * USED + rank
    tl.store(EXPERTS + at, tl.where(sound, experts, 0), mask=rank < USED)
    given = tl.div_rn(values.to(tl.float32, bitcast=True), chosen)
    tl.store(SHARES + at, given, mask=rank < USED)
