"""Activations as integers: float32 rows to int8 in groups of 32.

s = amax / 127, q = x / s rounded half to even, within -127..127; s is 0 for a group of zeros, and
a NaN or infinity goes into s with q = 0, as in `engine/reference/linear.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

GROUP = 32
SEGMENT = 512
_MAGIC = tl.constexpr(12582912.0)  # adding and taking it off rounds half to even


@dataclass(frozen=True, slots=True, eq=False)
class Activations:
    """Rows of int8 with S segments of 16 groups each. Groups behind the last column mean nothing.

    codes: int8 [R, S * 512], elements of a group in order, or woven: 0, 16, 1, 17, ...
    info: int64 [R, S * 16], a group's scale (the lower 32 bits) and the sums of its halves (16 bits
    each).
    """

    codes: torch.Tensor
    info: torch.Tensor


def room(rows: int, columns: int, device: torch.device) -> Activations:
    """Unwritten activations."""
    segments = -(-columns // SEGMENT)
    codes = torch.empty((rows, segments * SEGMENT), dtype=torch.int8, device=device)
    info = torch.empty((rows, segments * 16), dtype=torch.int64, device=device)
    return Activations(codes, info)


def quantised(x: torch.Tensor, *, woven: bool) -> Activations:
    """float32 [R, K], contiguous."""
    rows, columns = x.shape
    made = room(rows, columns, x.device)
    quantise[(rows, -(-columns // SEGMENT))](
        x, made.codes, made.info, K=columns, WOVEN=woven, num_warps=1, enable_fp_fusion=False
    )
    return made


@triton.jit
def integers(x, M: tl.constexpr):
    """float32 [M, 32] -> int32 [M, 32] and scales [M]."""
    # Comparing bits compares sizes, and NaNs are the largest.
    size = tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)
    amax = size.to(tl.float32, bitcast=True)
    s = tl.div_rn(amax, tl.full([M], 127.0, tl.float32))
    fine = (s > 0.0) & (s < float("inf"))
    by = tl.where(fine, s, 1.0)
    x, by = tl.broadcast(x, by[:, None])
    v = (tl.div_rn(x, by) + _MAGIC) - _MAGIC
    # Only a scale of a few units of 2**-149 leaves the range.
    v = tl.where(v > 127.0, 127.0, tl.where(v < -127.0, -127.0, v))
    q = tl.where(fine[:, None], v, 0.0).to(tl.int32)
    return q, s


@triton.jit
def packed_info(q, s, M: tl.constexpr):
    """int64 [M] of M groups: scales, and sums of the halves of int32 [M, 32]."""
    sums = tl.sum(tl.reshape(q, [M, 2, 16]), axis=2)
    # 16 bits of each sum; the lower one must not reach into the upper one.
    sums = tl.where(tl.arange(0, 2)[None, :] == 0, sums & 0xFFFF, sums << 16)
    upper = tl.sum(sums, axis=1).to(tl.int64) << 32
    return upper | (s.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def quantise(X, CODES, INFO, K: tl.constexpr, WOVEN: tl.constexpr):
    """One segment of one row. Grid (rows, segments)."""
    group = tl.arange(0, 16)
    at = tl.program_id(1) * 512 + group[:, None] * 32 + tl.arange(0, 32)[None, :]
    row = tl.program_id(0).to(tl.int64)
    x = tl.load(X + row * K + at, mask=at < K, other=0.0)
    q, s = integers(x, 16)
    first = (row * tl.num_programs(1) + tl.program_id(1)) * 16
    tl.store(INFO + first + group, packed_info(q, s, 16))
    codes = q
    if WOVEN:
        codes = tl.reshape(tl.permute(tl.reshape(q, [16, 2, 16]), (0, 2, 1)), [16, 32])
    to = (first + group)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(CODES + to, codes.to(tl.int8))
