"""Products of a few query heads with many stored vectors.

Order: the dot of `lanes.py`. Lanes are computed four at a time, each over its 16 products of a
segment in turn, and four lanes' tree is finished before the next four begin; so few sums live at a
time, and no sum crosses threads.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.kv_cache import read_values


@triton.jit
def four_lanes(
    QUERIES, VALUES, SCALES, vector, live, head_live, START: tl.constexpr, K: tl.constexpr,
    CODED: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Four lanes of a segment, from element START on, added as a tree: [P, C]."""
    head = tl.arange(0, P)
    lane = tl.arange(0, 4)
    lanes = tl.zeros([P, C, 4], tl.float32)
    for step in tl.static_range(16):
        if START + step * 32 < K:
            at = START + step * 32 + lane
            q = tl.load(
                QUERIES + head[:, None] * K + at[None, :],
                mask=head_live[:, None] & (at < K)[None, :],
                other=0.0,
            )
            inside = live[:, None] & (at < K)[None, :]
            v = read_values(VALUES, SCALES, vector[:, None], at[None, :], inside, K, CODED)
            q, v = tl.broadcast(q[:, None, :], v[None, :, :])
            lanes = lanes + q * v
    left, right = tl.split(tl.reshape(lanes, [P, C, 2, 2]))
    left, right = tl.split(left + right)
    return left + right


@triton.jit
def eight_lanes(
    QUERIES, VALUES, SCALES, vector, live, head_live, START: tl.constexpr, K: tl.constexpr,
    CODED: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """As `four_lanes`, for eight."""
    left = four_lanes(QUERIES, VALUES, SCALES, vector, live, head_live, START, K, CODED, P, C)
    right = four_lanes(QUERIES, VALUES, SCALES, vector, live, head_live, START + 4, K, CODED, P, C)
    return left + right


@triton.jit
def sixteen_lanes(
    QUERIES, VALUES, SCALES, vector, live, head_live, START: tl.constexpr, K: tl.constexpr,
    CODED: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """As `four_lanes`, for sixteen."""
    left = eight_lanes(QUERIES, VALUES, SCALES, vector, live, head_live, START, K, CODED, P, C)
    right = eight_lanes(QUERIES, VALUES, SCALES, vector, live, head_live, START + 8, K, CODED, P, C)
    return left + right


@triton.jit
def dots(
    QUERIES, VALUES, SCALES, vector, live, head_live, K: tl.constexpr, CODED: tl.constexpr,
    P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """The products of float32 [heads, K] in memory with C stored vectors: float32 [P, C].

    vector: int64 [C], counted from the start of VALUES (see `read_values`). 0 for vectors that are
    not `live` and heads that are not `head_live`.
    """
    total = tl.zeros([P, C], tl.float32)
    for segment in tl.static_range((K + 511) // 512):
        left = sixteen_lanes(
            QUERIES, VALUES, SCALES, vector, live, head_live, segment * 512, K, CODED, P, C
        )
        right = sixteen_lanes(
            QUERIES, VALUES, SCALES, vector, live, head_live, segment * 512 + 16, K, CODED, P, C
        )
        total = total + (left + right)
    return total
