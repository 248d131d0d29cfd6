"""Products of float rows and float matrices: dot32, as `engine/reference/lanes.py` orders it.

In a segment of 512 inputs lane l adds the products of inputs l, l + 32, ... in turn, from 0; the
lanes are added as a tree of adjacent pairs, the segments in ascending order. A warp takes a
segment.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import lanes
from engine.kernels.unpack import load


@triton.jit
def float_tile(X, tile, row, rows, K: tl.constexpr, FORM: tl.constexpr, R: tl.constexpr,
               LEVELS: tl.constexpr):  # fmt: skip
    """R rows times one tile: [FORM.tile, R]. 2**LEVELS segments at a time.

    row: the first of R rows; those from `rows` on are computed as the last one.
    """
    S: tl.constexpr = 1 << LEVELS
    B: tl.constexpr = FORM.tile
    SEGMENTS: tl.constexpr = (FORM.groups + 15) // 16
    UNROLLED: tl.constexpr = FORM.unrolled
    ALL: tl.constexpr = FORM.groups % (16 * S) == 0 and K % 32 == 0
    # Axes: outputs, segments, rows, lanes. Four lanes in a thread; rows stay in a thread.
    n = tl.arange(0, B)[:, None, None, None]
    lane = tl.arange(0, 32)[None, None, None, :]
    r = tl.minimum(row + tl.arange(0, R), rows - 1).to(tl.int64)[None, None, :, None] * K
    total = tl.zeros([B * R], tl.float32)
    for first in range(0, SEGMENTS, S):
        g = (first + tl.arange(0, S))[None, :, None, None] * 16
        weights = ()
        for i in tl.static_range(UNROLLED):
            p = tile + (g + i) * (B * 32) + n * 32 + lane
            weights = weights + (load(p, g + i < FORM.groups, ALL),)
        # Without it the compiler moves every load down to its use, and nothing is in flight.
        tl.debug_barrier()
        acc = tl.zeros([B, S, R, 32], tl.float32)
        for i in tl.static_range(UNROLLED):
            at = (g + i) * 32 + lane
            # Every output reads the row itself: the layout of weights is that of products.
            x = load(X + r + at + n * 0, at < K, ALL)
            w, x = tl.broadcast(weights[i].to(tl.float32), x)
            acc = acc + w * x
        parts = tl.reshape(lanes.tree(acc, B * S * R), [B, S, R])
        parts = tl.reshape(tl.permute(parts, (1, 0, 2)), [S, B * R])
        total = lanes.add_in_order(total, parts, B * R, LEVELS)
    return tl.reshape(total, [B, R])


@triton.jit(do_not_specialize=["rows"])
def few(X, RECORD, EXPERTS, OUT, rows, N: tl.constexpr, K: tl.constexpr, USED: tl.constexpr,
        FORM: tl.constexpr, R: tl.constexpr, LEVELS: tl.constexpr,
        KIND: tl.constexpr):  # fmt: skip
    """OUT[rows, N]. Grid (tiles, row blocks of R).

    With USED, RECORD holds the addresses of a stack, and row p of OUT is matrix EXPERTS[p] times
    row p // USED; then R is 1. KIND: how the weights are stored.
    """
    B: tl.constexpr = FORM.tile
    tile = tl.program_id(0)
    block = tl.program_id(1)
    if USED:
        at = tl.load(RECORD + tl.load(EXPERTS + block)).to(tl.pointer_type(KIND))
        base = tl.multiple_of(at, 16)
        row = block // USED
        last = rows // USED
    else:
        base = RECORD
        row = block * R
        last = rows
    base = base + tile.to(tl.int64) * (FORM.groups * B * 32)
    out = float_tile(X, base, row, last, K, FORM, R, LEVELS)
    n = (tile * B + tl.arange(0, B))[:, None]
    p = (block * R + tl.arange(0, R))[None, :]
    tl.store(OUT + p.to(tl.int64) * N + n, out, mask=(n < N) & (p < rows))
