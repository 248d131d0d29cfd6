"""The experts of a row: the most probable ones by softmax, and the share of each.

The sum over all probabilities follows `engine/reference/lanes.py`. A warp has a row, and a thread
every 32nd expert, a tensor each of one number a thread, [32 * warps], as the sum's order has it.
For few rows programs of the launch that makes their logits do it (`linear.project`).
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,misc,var-annotated"

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from engine.kernels import scalar, unpack
from engine.kernels.awaited import NOT_YET, look
from engine.kernels.dependent import launch_options, wait

MINUS_INFINITY = tl.constexpr(-0x800000)
"""Its bits."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Room for the `used` most probable experts of each row, int32 [R, A], and their shares,
    float32 [R, A].

    Softmax over all experts, best first (equal: the lowest index), shares divided by their sum.
    """

    experts: torch.Tensor
    shares: torch.Tensor

    @property
    def used(self) -> int:
        """A."""
        return self.experts.shape[1]


def room_for(rows: int, used: int, device: torch.device) -> Choice:
    """An unwritten choice."""
    return Choice(
        torch.empty((rows, used), dtype=torch.int32, device=device),
        torch.empty((rows, used), dtype=torch.float32, device=device),
    )


def choose(logits: torch.Tensor, choice: Choice) -> None:
    """Fills the choice. logits: float32 [R, E], what the router gave."""
    rows, count = logits.shape
    if rows:
        top_experts[(rows,)](
            logits, choice.experts, choice.shares, COUNT=count, USED=choice.used,
            ASM=logits.is_cuda and torch.version.hip is None, num_warps=1,
            **launch_options(logits),
        )  # fmt: skip


@triton.constexpr_function
def _exchange_text(distance):
    return f"shfl.sync.bfly.b32 $0, $1, {distance}, 0x1f, 0xffffffff;"


@triton.jit
def _added_lanes(x, W: tl.constexpr, ASM: tl.constexpr):
    """The sum of each warp's float32 numbers as a tree of adjacent pairs, in all of its threads."""
    for i in tl.static_range(5):
        bits = x.to(tl.int32, bitcast=True)
        if ASM:
            other = tl.inline_asm_elementwise(
                _exchange_text(1 << i), "=r,r", [bits], dtype=tl.int32, is_pure=False, pack=1
            )
        else:
            other = tl.gather(bits, tl.arange(0, 32 * W) ^ (1 << i), 0)
        x = x + other.to(tl.float32, bitcast=True)
    return x


@triton.jit
def _largest_of_warp(x, W: tl.constexpr, ASM: tl.constexpr):
    """The largest of each warp's int32 numbers, in all of its threads."""
    if ASM:
        found = tl.inline_asm_elementwise(
            "redux.sync.max.s32 $0, $1, 0xffffffff;", "=r,r", [x], dtype=tl.int32, is_pure=False,
            pack=1,
        )  # fmt: skip
    else:
        largest = tl.max(tl.reshape(x, [W, 32]), axis=1)
        found = tl.reshape(tl.broadcast_to(largest[:, None], [W, 32]), [32 * W])
    return found


@triton.jit
def _largest(parts, COUNT: tl.constexpr):
    """The largest of COUNT tensors, element by element."""
    found = parts[0]
    for i in tl.static_range(1, COUNT):
        found = tl.maximum(found, parts[i])
    return found


@triton.jit
def _ordered(bits):
    """Bits of a float as an integer that orders as it does, and back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


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
def _words_of_row(at, lane, COUNT: tl.constexpr, ASM: tl.constexpr):
    """Bits of a row's logits; 0 behind the last one."""
    words = ()
    for i in tl.static_range((COUNT + 31) // 32):
        there = (i * 32 + lane < COUNT).to(tl.int32)
        words = words + unpack.words(at, there, i * 32, 1, i * 32 + 32 > COUNT, ASM)
    return words


@triton.jit
def awaited_words_of_row(at, live, lane, COUNT: tl.constexpr, ASM: tl.constexpr):
    """The same when all of them are there; then NOT_YET is. Only where `live`."""
    GROUPS: tl.constexpr = (COUNT + 31) // 32
    words = ()
    for _ in tl.static_range(GROUPS):
        words = words + (lane * 0,)
    missing = 1
    while missing > 0:
        none = lane < 0
        found = ()
        for i in tl.static_range(GROUPS):
            word = look(at, live & (i * 32 + lane < COUNT), i * 32, ASM)
            found = found + (word,)
            none = none | (word == NOT_YET)
        words = found
        missing = tl.max(none.to(tl.int32), axis=0)
    for i in range(GROUPS):
        there = live & (i * 32 + lane < COUNT)
        tl.store(at + i * 32, tl.full(lane.shape, NOT_YET, tl.int32), mask=there)
    return words


@triton.jit
def choose_of_row(words, EXPERTS, SHARES, row, live, lane, COUNT: tl.constexpr,
                  USED: tl.constexpr, W: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """The choice of a row each warp, where it is `live`: USED (32 at most) of COUNT experts. words:
    bits of its logits.

    row, live: [32 * W], the same in a warp. A rank costs two reductions of integers over a warp.
    """
    GROUPS: tl.constexpr = (COUNT + 31) // 32
    logits = ()
    keys = ()
    for i in tl.static_range(GROUPS):
        bits = tl.where(i * 32 + lane < COUNT, words[i], MINUS_INFINITY)
        logits = logits + (bits.to(tl.float32, bitcast=True),)
        keys = keys + (_ordered(bits),)
    best = _ordered(_largest_of_warp(_largest(keys, GROUPS), W, ASM)).to(tl.float32, bitcast=True)
    total = tl.zeros([32 * W], tl.float32)
    acc = tl.zeros([32 * W], tl.float32)
    parts = ()
    for i in tl.static_range(GROUPS):
        # Behind the last expert stands -inf, whose exponential is 0, unless `best` is no number.
        part = tl.where(i * 32 + lane < COUNT, scalar.exp(logits[i] - best), 0.0)
        parts = parts + (part,)
        acc = acc + part
        if i % 16 == 15 or i == GROUPS - 1:
            total = total + _added_lanes(acc, W, ASM)
            acc = tl.zeros([32 * W], tl.float32)
    # Of numbers from 0 to 1, bits order as the numbers do. Where one probability is no number none
    # is: then all keys are equal, and the first expert counts as the best, again and again.
    sound = total == total
    shares = quotients(parts, total, GROUPS, ASM)
    keys = ()
    for i in tl.static_range(GROUPS):
        bits = tl.where(sound, shares[i].to(tl.int32, bitcast=True), 0)
        keys = keys + (tl.where(i * 32 + lane < COUNT, bits, -1),)
    experts = tl.zeros([32 * W], tl.int32)
    values = tl.zeros([32 * W], tl.int32)
    # Nothing, unless there is no number.
    chosen = total - total
    for a in range(USED):
        key = _largest_of_warp(_largest(keys, GROUPS), W, ASM)
        own = tl.full([32 * W], -GROUPS * 32, tl.int32)
        for i in tl.static_range(GROUPS):
            own = tl.where(keys[GROUPS - 1 - i] == key, -(GROUPS - 1 - i) * 32 - lane, own)
        first = -_largest_of_warp(own, W, ASM)
        left = ()
        for i in tl.static_range(GROUPS):
            left = left + (tl.where(i * 32 + lane == first, -1, keys[i]),)
        keys = left
        experts = tl.where(lane == a, first, experts)
        values = tl.where(lane == a, key, values)
        chosen = chosen + key.to(tl.float32, bitcast=True)
    to = row.to(tl.int64) * USED + lane
    live = live & (lane < USED)
    tl.store(EXPERTS + to, tl.where(sound, experts, 0), mask=live)
    tl.store(SHARES + to, tl.div_rn(values.to(tl.float32, bitcast=True), chosen), mask=live)


@triton.jit
def top_experts(LOGITS, EXPERTS, SHARES, COUNT: tl.constexpr, USED: tl.constexpr,
                ASM: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """As `choose`, one row a program of one warp."""
    lane = tl.arange(0, 32)
    row = tl.program_id(0) + lane * 0
    at = LOGITS.to(tl.pointer_type(tl.int32)) + row.to(tl.int64) * COUNT + lane
    wait(PDL)
    words = _words_of_row(at, lane, COUNT, ASM)
    choose_of_row(words, EXPERTS, SHARES, row, lane >= 0, lane, COUNT, USED, 1, ASM)
