"""What matrices multiply: rows of floats with the same rows as int8 in groups of 32.

Codes lie as tensor cores take them. Eight rows make a block; of a group, thread 4 * (row % 8) + q
of a warp has elements 4q to 4q + 3 and then 16 + 4q to 16 + 4q + 3, eight bytes in a run. Behind
the codes of a group lie, the same way, their second limbs, which matrices of two limbs take. Rows
of a block that do not exist are never written and mean nothing: each row's products are its own.

s = amax / 127, q = x / s rounded half to even, within -127..127; s is 0 for a group of zeros, and
a NaN or infinity goes into s with q = 0, as in `engine/reference/linear.py`. A second limb is what
q leaves of x / s in units of 1/256.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from engine.kernels.dependent import launch_options, wait

GROUP = 32
SEGMENT = 512
ROWS = 8
"""Rows of a block."""
CODES = 2 * ROWS * GROUP
"""Bytes of a group of a block."""
_ROUNDS = tl.constexpr(12582912.0)  # adding and taking it off rounds half to even


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """R rows of K values. Groups are counted to whole segments; those behind K mean nothing.

    values: float32 [R, K].
    codes: int8 [ceil(R / 8), groups, 512]; the last axis is [2 limbs, 8 rows, 4 threads, 2 halves,
    4].
    info: int64 [ceil(R / 8), groups, 8 rows]: a group's scale (the lower 32 bits) and the sums of
    its halves (16 bits each).
    """

    values: torch.Tensor
    codes: torch.Tensor
    info: torch.Tensor

    @property
    def rows(self) -> int:
        """R."""
        return self.values.shape[0]


def room(rows: int, columns: int, device: torch.device) -> Input:
    """An unwritten input."""
    blocks, groups = -(-rows // ROWS), -(-columns // SEGMENT) * (SEGMENT // GROUP)
    return Input(
        torch.empty((rows, columns), dtype=torch.float32, device=device),
        torch.empty((blocks, groups, CODES), dtype=torch.int8, device=device),
        torch.empty((blocks, groups, ROWS), dtype=torch.int64, device=device),
    )


def as_input(x: torch.Tensor) -> Input:
    """float32 [R, K]."""
    x = x.contiguous()
    rows, columns = x.shape
    made = room(rows, columns, x.device)
    if rows:
        groups = made.codes.shape[1]
        quantise[(rows, groups // 16)](
            x, made.codes, made.info, groups, K=columns, num_warps=1, **launch_options(x)
        )
    return Input(x, made.codes, made.info)


@triton.jit
def integers(x, M: tl.constexpr):
    """float32 [M, 32] -> int32 [M, 32], its second limbs, and scales [M]."""
    # Comparing bits compares sizes, and NaNs are the largest.
    size = tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)
    amax = size.to(tl.float32, bitcast=True)
    s = tl.div_rn(amax, tl.full([M], 127.0, tl.float32))
    fine = (s > 0.0) & (s < float("inf"))
    by = tl.where(fine, s, 1.0)
    x, by = tl.broadcast(x, by[:, None])
    exact = tl.div_rn(x, by)
    v = (exact + _ROUNDS) - _ROUNDS
    # Only a scale of a few units of 2**-149 leaves the range.
    v = tl.where(v > 127.0, 127.0, tl.where(v < -127.0, -127.0, v))
    left = ((exact - v) * 256.0 + _ROUNDS) - _ROUNDS
    left = tl.where(left > 127.0, 127.0, tl.where(left < -128.0, -128.0, left))
    q = tl.where(fine[:, None], v, 0.0).to(tl.int32)
    return q, tl.where(fine[:, None], left, 0.0).to(tl.int32), s


@triton.jit
def packed_info(q, s, M: tl.constexpr):
    """int64 [M] of M groups: scales, and sums of the halves of int32 [M, 32]."""
    sums = tl.sum(tl.reshape(q, [M, 2, 16]), axis=2)
    # 16 bits of each sum; the lower one must not reach into the upper one.
    sums = tl.where(tl.arange(0, 2)[None, :] == 0, sums & 0xFFFF, sums << 16)
    upper = tl.sum(sums, axis=1).to(tl.int64) << 32
    return upper | (s.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def words_of(q, M: tl.constexpr):
    """The lowest bytes of int32 [M, 32] as words of four, int32 [M, 8]."""
    byte = tl.arange(0, 4)[None, None, :]
    return tl.sum((tl.reshape(q, [M, 8, 4]) & 255) << (8 * byte), axis=2)


@triton.jit
def store_groups(CODES, INFO, x, row, group, groups, live, M: tl.constexpr):
    """Quantises float32 [M, 32] and stores them: one group each of M pairs of a row and a group.

    row, group: int [M] (or whatever broadcasts to it); groups: of a row in CODES; live: [M].
    """
    q, low, s = integers(x, M)
    block = (row // 8).to(tl.int64)
    cell = (block * groups + group) * 8 + row % 8
    cell = cell + tl.zeros([M], tl.int64)
    tl.store(INFO + cell, packed_info(q, s, M), mask=live)
    # Four neighbours lie side by side: a word, where bytes would be stored one by one.
    word = tl.arange(0, 8)[None, :]
    at = CODES.to(tl.pointer_type(tl.int32)) + (
        (cell + (block * groups + group) * 8)[:, None] * 8 + (word % 4 * 2 + word // 4)
    )
    tl.store(at, words_of(q, M), mask=live[:, None])
    tl.store(at + 64, words_of(low, M), mask=live[:, None])


@triton.jit(do_not_specialize=["groups"])
def quantise(X, CODES, INFO, groups, K: tl.constexpr, PDL: tl.constexpr):
    """One segment of one row. Grid (rows, segments)."""
    wait(PDL)
    group = tl.program_id(1) * 16 + tl.arange(0, 16)
    at = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    row = tl.program_id(0)
    x = tl.load(X + row.to(tl.int64) * K + at, mask=at < K, other=0.0)
    store_groups(CODES, INFO, x, row, group, groups, group < groups, 16)
