"""The experts of a row: the most probable ones by softmax, and the share of each.

The sum over all probabilities follows `engine/reference/lanes.py`.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels import lanes, scalar
from engine.kernels.dependent import announce, launch_options, wait


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
def reduced(parts, COUNT: tl.constexpr, LOW: tl.constexpr):
    """The largest (LOW: the lowest) of COUNT tensors, as a tree, whose depth is its time."""
    for level in tl.static_range(6):
        if (1 << level) < COUNT:
            less = ()
            for i in tl.static_range((COUNT + (2 << level) - 1) // (2 << level)):
                a = parts[2 * i]
                if 2 * i + 1 < (COUNT + (1 << level) - 1) // (1 << level):
                    b = parts[2 * i + 1]
                    a = tl.minimum(a, b) if LOW else tl.maximum(a, b)
                less = less + (a,)
            parts = less
    return parts[0]


@triton.jit
def quotients(parts, by, COUNT: tl.constexpr, FUSED: tl.constexpr):
    """Each of COUNT tensors of numbers from 0 to 1 divided by `by`, 1 or more: the bits of
    IEEE division. FUSED: without its branches, by residuals that a fused multiply-add gives
    exactly (Markstein's theorem)."""
    out = ()
    if not FUSED:
        for i in tl.static_range(COUNT):
            out = out + (tl.div_rn(parts[i], by),)
    else:
        y = tl.div_rn(tl.full(by.shape, 1.0, tl.float32), by)
        quick = ()
        normal = ()
        for i in tl.static_range(COUNT):
            q = parts[i] * y
            q = tl.fma(tl.fma(-q, by, parts[i]), y, q)
            quick = quick + (tl.fma(tl.fma(-q, by, parts[i]), y, q),)
            bits = parts[i].to(tl.int32, bitcast=True)
            normal = normal + (tl.where(bits > 0, bits, 0x3F800000),)
        out = quick
        # A residual of numbers below 2**-90 may underflow. Bits order as the numbers do.
        if tl.min(reduced(normal, COUNT, True), axis=0) < 0x12800000:
            slow = ()
            for i in tl.static_range(COUNT):
                slow = slow + (tl.div_rn(parts[i], by),)
            out = slow
    return out


@triton.jit
def top_experts(LOGITS, EXPERTS, SHARES, COUNT: tl.constexpr, USED: tl.constexpr,
                RANKS: tl.constexpr, FUSED: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """As `top`, one row a program of one warp. RANKS: a power of two that holds USED.

    A thread has a lane of every group of 32 experts, so the ordered sum needs no exchange before
    its tree, and a rank costs two reductions of integers over the warp.
    """
    GROUPS: tl.constexpr = (COUNT + 31) // 32
    announce(PDL)
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, 32)
    wait(PDL)
    x = ()
    for i in tl.static_range(GROUPS):
        at = i * 32 + lane
        x = x + (tl.load(LOGITS + row * COUNT + at, mask=at < COUNT, other=float("-inf")),)
    best = tl.max(reduced(x, GROUPS, False), axis=0)
    p = ()
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([32], tl.float32)
    for i in tl.static_range(GROUPS):
        # Behind the last expert stands -inf, whose exponential is 0, unless `best` is no number.
        e = tl.where(i * 32 + lane < COUNT, scalar.exp(x[i] - best), 0.0)
        p = p + (e,)
        acc = acc + e
        if i % 16 == 15 or i == GROUPS - 1:
            total = total + lanes.tree(acc, 1)
            acc = tl.zeros([32], tl.float32)
    # Of numbers from 0 to 1, bits order as the numbers do. Where one probability is no number none
    # is: then all keys are equal, and the first expert counts as the best, again and again.
    sound = total == total
    by, acc = tl.broadcast(total, acc)
    p = quotients(p, by, GROUPS, FUSED)
    keys = ()
    for i in tl.static_range(GROUPS):
        bits = tl.where(sound, p[i].to(tl.int32, bitcast=True), 0)
        keys = keys + (tl.where(i * 32 + lane < COUNT, bits, -1),)
    rank = tl.arange(0, RANKS)
    experts = tl.zeros([RANKS], tl.int32)
    values = tl.zeros([RANKS], tl.int32)
    # Nothing, unless there is no number.
    chosen = total - total
    for a in range(USED):  # not unrolled: compiling that takes most of a minute
        key = tl.max(reduced(keys, GROUPS, False), axis=0)
        found = ()
        for i in tl.static_range(GROUPS):
            found = found + (tl.where(keys[i] == key, i * 32 + lane, GROUPS * 32),)
        expert = tl.min(reduced(found, GROUPS, True), axis=0)
        left = ()
        for i in tl.static_range(GROUPS):
            left = left + (tl.where(i * 32 + lane == expert, -1, keys[i]),)
        keys = left
        experts = tl.where(rank == a, expert, experts)
        values = tl.where(rank == a, key, values)
        chosen = chosen + (key + tl.zeros([1], tl.int32)).to(tl.float32, bitcast=True)
    at = row * USED + rank
    tl.store(EXPERTS + at, tl.where(sound, experts, 0), mask=rank < USED)
    shares, by = tl.broadcast(values.to(tl.float32, bitcast=True), chosen)
    tl.store(SHARES + at, tl.div_rn(shares, by), mask=rank < USED)
