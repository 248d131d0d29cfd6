"""Products of float rows and float matrices: dot32, as `engine/reference/lanes.py` orders it.

In a segment of 512 inputs lane l adds the products of inputs l, l + 32, ... in turn, from 0; the
lanes are added as a tree of adjacent pairs, the segments in ascending order. A warp takes a segment.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import lanes


@triton.jit
def float_tile(X, tile, row, rows, K: tl.constexpr, FORM: tl.constexpr, R: tl.constexpr,
               LEVELS: tl.constexpr):  # fmt: skip
    """R rows times one tile: a tuple of R tensors [FORM.tile]. 2**LEVELS segments at a time.

    row: the first of R rows; those from `rows` on are computed as the last one.
    """
    S: tl.constexpr = 1 << LEVELS
    B: tl.constexpr = FORM.tile
    SEGMENTS: tl.constexpr = (FORM.groups + 15) // 16
    ALL: tl.constexpr = FORM.groups % (16 * S) == 0
    n = tl.arange(0, B)[None, :, None]
    lane = tl.arange(0, 32)[None, None, :]
    totals = ()
    for r in tl.static_range(R):
        totals = totals + (tl.zeros([B], tl.float32),)
    for first in tl.static_range(0, SEGMENTS, S):
        g0 = (first + tl.arange(0, S))[:, None, None] * 16
        weights = ()
        for i in tl.static_range(FORM.unrolled):
            p = tile + (g0 + i) * (B * 32) + n * 32 + lane
            if ALL:
                weights = weights + (tl.load(p),)
            else:
                weights = weights + (tl.load(p, mask=g0 + i < FORM.groups, other=0.0),)
        accs = ()
        for r in tl.static_range(R):
            accs = accs + (tl.zeros([S, B, 32], tl.float32),)
        for i in tl.static_range(FORM.unrolled):
            w = weights[i].to(tl.float32)
            new = ()
            for r in tl.static_range(R):
                at = (g0 + i) * 32 + lane
                x = X + tl.minimum(row + r, rows - 1).to(tl.int64) * K + at
                if ALL and K % 32 == 0:
                    a = tl.load(x)
                else:
                    a = tl.load(x, mask=at < K, other=0.0)
                v, a = tl.broadcast(w, a)
                new = new + (accs[r] + v * a,)
            accs = new
        after = ()
        for r in tl.static_range(R):
            parts = tl.reshape(lanes.tree(accs[r], S * B), [S, B])
            after = after + (lanes.add_in_order(totals[r], parts, B, LEVELS),)
        totals = after
    return totals


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
    totals = float_tile(X, base, row, last, K, FORM, R, LEVELS)
    n = tile * B + tl.arange(0, B)
    for r in tl.static_range(R):
        p = block * R + r
        tl.store(OUT + p.to(tl.int64) * N + n, totals[r], mask=n < tl.where(p < rows, N, 0))
