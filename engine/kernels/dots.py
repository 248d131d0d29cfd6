"""Products of a few query heads with many stored vectors.

Order: the dot of `lanes.py`. Lanes are computed four at a time, each over its 16 products of a
segment in turn, and four lanes' tree is finished before the next four begin, so few sums live at a
time. The upper levels of the tree are loops of two turns, 0 + left + right: sums start from +0, are
never -0, and so 0 + left is left. A thread has whole lanes of one vector for all heads: no sum
crosses threads. Each thread loads the queries for itself (they come from the L1 cache), in tensors
of one shape with the stored values: so nothing moves between threads.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def zeros(P: tl.constexpr, C: tl.constexpr):
    """P tensors of zeros, [C]."""
    made = ()
    for _ in tl.static_range(P):
        made = made + (tl.zeros([C], tl.float32),)
    return made


@triton.jit
def add(left, right, P: tl.constexpr):
    """Sums of two tuples of P tensors, one by one."""
    total = ()
    for head in tl.static_range(P):
        total = total + (left[head] + right[head],)
    return total


@triton.jit
def four_lanes(
    QUERIES, VALUES, scales, starts, heads, start, SEGMENT: tl.constexpr, K: tl.constexpr,
    CODED: tl.constexpr, FULL: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Four lanes of a segment, from `start` on, added as a tree: [C] for each of P heads."""
    lane = start + tl.arange(0, 4)[None, :] + tl.arange(0, C)[:, None] * 0
    lanes = ()
    for _ in tl.static_range(P):
        lanes = lanes + (tl.zeros([C, 4], tl.float32),)
    for step in tl.static_range(16):
        if SEGMENT * 512 + step * 32 < K:
            at = lane + step * 32
            if K % 32 == 0:
                v = tl.load(VALUES + starts + at).to(tl.float32)
            else:
                v = tl.load(VALUES + starts + at, mask=at < K, other=0).to(tl.float32)
            if CODED:
                v = v * scales[(SEGMENT * 512 + step * 32) // 64]
            after = ()
            for head in tl.static_range(P):
                if FULL and K % 32 == 0:
                    q = tl.load(QUERIES + head * K + at)
                else:
                    width = tl.where(head < heads, K, 0)
                    q = tl.load(QUERIES + head * K + at, mask=at < width, other=0.0)
                after = after + (lanes[head] + q * v,)
            lanes = after
    sums = ()
    for head in tl.static_range(P):
        left, right = tl.split(tl.reshape(lanes[head], [C, 2, 2]))
        left, right = tl.split(left + right)
        sums = sums + (left + right,)
    return sums


@triton.jit
def dots(
    QUERIES, VALUES, SCALES, vector, heads, K: tl.constexpr, CODED: tl.constexpr,
    FULL: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """The products of float32 [heads, K] in memory with C stored vectors: a tuple of P tensors,
    float32 [C].

    vector: int64 [C], counted from the start of VALUES. 0 for heads from `heads` on; FULL: there
    are P heads.
    """
    starts = vector[:, None] * K
    scales = ()
    if CODED:
        for group in tl.static_range((K + 63) // 64):
            scale = tl.load(SCALES + vector[:, None] * ((K + 63) // 64) + group)
            scales = scales + (scale.to(tl.float32),)
    total = zeros(P, C)
    for segment in tl.static_range((K + 511) // 512):
        whole = zeros(P, C)
        for half in range(2):
            part = zeros(P, C)
            for quarter in range(2):
                start = segment * 512 + half * 16 + quarter * 8
                left = four_lanes(
                    QUERIES, VALUES, scales, starts, heads, start, segment, K, CODED, FULL, P, C
                )
                right = four_lanes(
                    QUERIES, VALUES, scales, starts, heads, start + 4, segment, K, CODED, FULL, P, C
                )
                part = add(part, add(left, right, P), P)
            whole = add(whole, part, P)
        total = add(total, whole, P)
    return total
