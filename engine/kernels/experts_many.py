"""Products of experts with many pairs each, as prompts have them: a warp takes several tiles, so
that what it loads of the rows serves all of these.

A block of rows costs 16 numbers of a thread for a quad, a tile 10. Rows lie in the caches, but a
warp that loads them for one tile waits for them most of the time.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,misc,union-attr,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import scalar, unpack
from engine.kernels.dependent import wait
from engine.kernels.inputs import store_groups
from engine.kernels.integer_product import (
    add_each,
    block_input,
    block_quad_terms,
    block_terms,
    group_factors,
    no_terms,
)

TILES = tl.constexpr(4)
"""Tiles of a warp: with two of gate and two of up it makes a group of the next input."""


@triton.jit
def tile_of(record, tile, quads, FORM: tl.constexpr):
    """Where a tile of a record begins."""
    words = quads * FORM.quad + (quads + 3) // 4 * (8 * FORM.tail)
    return record + tile.to(tl.int64) * words


@triton.jit
def _replaced(acc, new, AT: tl.constexpr, COUNT: tl.constexpr, ALL: tl.constexpr):
    """acc with COUNT of its ALL tensors, from AT on, replaced."""
    out = ()
    for c in tl.static_range(ALL):
        out = out + (new[c - AT] if c >= AT and c < AT + COUNT else acc[c],)
    return out


@triton.jit
def _of_tile(acc, AT: tl.constexpr, COUNT: tl.constexpr):
    out = ()
    for c in tl.static_range(AT, AT + COUNT):
        out = out + (acc[c],)
    return out


@triton.jit
def _scales(tile, quad, quads, lane, FORM: tl.constexpr, ASM: tl.constexpr):
    """Scales of a quad's segment, where the first quad of a segment finds its own."""
    at = tile + quads * FORM.quad + quad // 4 * (8 * FORM.tail)
    found = unpack.words(at + lane // 4 * FORM.tail, lane, 0, FORM.tail, False, ASM)
    second = quad // 2 % 2
    COUNT: tl.constexpr = FORM.tail
    out = ()
    for i in tl.static_range(COUNT):
        if FORM.wide:
            out = out + (tl.where(second > 0, found[i // 2 * 2 + 1], found[i // 2 * 2]),)
        else:
            out = out + (found[i] >> (16 * second),)
    return out


@triton.jit
def _tile_quad_terms(acc, found, tail, at, given, left, FORM: tl.constexpr, NT: tl.constexpr,
                     TOGETHER: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr,
                     ASM: tl.constexpr):  # fmt: skip
    """acc plus the terms of a quad of one tile with NT blocks of rows."""
    if FORM.bits == 16:
        acc = block_quad_terms(acc, found, tail, at, left, 0, FORM, NT, 2, TOGETHER, WHOLE, W, ASM)
    else:
        for j in tl.static_range(4):
            factors = group_factors(found, tail, j, FORM, ASM)
            out = ()
            for t in tl.static_range(NT):
                out = out + block_terms(acc, factors, given, left > j, 4 * t, 6 * (NT * j + t),
                                        FORM, 2, WHOLE, W, ASM)  # fmt: skip
            acc = out
    return acc


@triton.jit
def totals_of_tiles(tiles, x, quads, groups, lane, COUNT: tl.constexpr, FORM: tl.constexpr,
                    NT: tl.constexpr, TOGETHER: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr,
                    ASM: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """Products of COUNT tiles of each thread with its rows: 4 * NT tensors of the first one, as
    `segment_terms` orders them, then of the next. WHOLE: quads have four groups. PDL: to wait when
    the first weights are under way."""
    EACH: tl.constexpr = 4 * NT
    total = no_terms(COUNT * NT, 2, W)
    weights = unpack.quad(tiles[0], lane, lane, 0, FORM, False, ASM)
    tail = _scales(tiles[0], 0, quads, lane, FORM, ASM)
    wait(PDL)
    for first in range(0, quads, 4):
        acc = no_terms(COUNT * NT, 2, W)
        # Unrolled, the code would not fit into its cache.
        for quad in range(first, tl.minimum(first + 4, quads)):
            at = ()
            for t in tl.static_range(NT):
                info = quad * (4 * 16)
                at = at + (x[3 * t] + quad * (4 * 128), x[3 * t + 1] + info, x[3 * t + 2] + info)
            given = ()
            if FORM.bits < 16:
                for j in tl.static_range(4):
                    for t in tl.static_range(NT):
                        given = given + block_input(at, lane, j, t, 2, TOGETHER, ASM)
            # At the end the last one again, which is near.
            after = tl.minimum(quad + 1, quads - 1)
            for t in tl.static_range(COUNT):
                now = weights
                scales = tail
                near = tiles[t + 1 if t < COUNT - 1 else 0]
                its_quad = quad if t < COUNT - 1 else after
                weights = unpack.quad(near + its_quad * FORM.quad, lane, lane, 0, FORM, False, ASM)
                tail = _scales(near, its_quad, quads, lane, FORM, ASM)
                new = _tile_quad_terms(_of_tile(acc, t * EACH, EACH), now, scales, at, given,
                                       groups - quad * 4, FORM, NT, TOGETHER, WHOLE, W,
                                       ASM)  # fmt: skip
                acc = _replaced(acc, new, t * EACH, EACH, COUNT * EACH)
        total = add_each(total, acc, COUNT * EACH)
    return total


@triton.jit
def gated_rows(GATE, UP, x, number, count, quads, groups, OUT, OUT_INFO, out_row,
               out_step, GATE_FORM: tl.constexpr, UP_FORM: tl.constexpr, NT: tl.constexpr,
               WHOLE: tl.constexpr, W: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """silu(gate) * up as integers of the next product: a group of 32 outputs each warp, of `count`
    groups, from program `number`'s first one on, for 8 * NT rows from `out_row` on."""
    thread = tl.arange(0, 32 * W)
    lane = thread % 32
    own = number * W + thread // 32
    near = tl.minimum(own, count - 1) * 2
    gates = (tile_of(GATE, near, quads, GATE_FORM), tile_of(GATE, near + 1, quads, GATE_FORM))
    ups = (tile_of(UP, near, quads, UP_FORM), tile_of(UP, near + 1, quads, UP_FORM))
    if GATE_FORM == UP_FORM:
        both = totals_of_tiles(gates + ups, x, quads, groups, lane, 4, GATE_FORM, NT, False,
                               WHOLE, W, ASM, False)  # fmt: skip
    else:
        first = totals_of_tiles(gates, x, quads, groups, lane, 2, GATE_FORM, NT, False, WHOLE, W,
                                ASM, False)  # fmt: skip
        both = first + totals_of_tiles(ups, x, quads, groups, lane, 2, UP_FORM, NT, False, WHOLE,
                                       W, ASM, False)  # fmt: skip
    M: tl.constexpr = 8 * W
    row = tl.arange(0, M) % 8
    group = number * W + tl.arange(0, M) // 8
    for t in tl.static_range(NT):
        h = ()
        for k in tl.static_range(2):
            for c in tl.static_range(4):
                g = both[(k * NT + t) * 4 + c]
                h = h + (scalar.silu(g) * both[(2 * NT + k * NT + t) * 4 + c],)
        halves = tl.join(tl.join(h[0], h[1]), tl.join(h[2], h[3]))
        others = tl.join(tl.join(h[4], h[5]), tl.join(h[6], h[7]))
        # warp, output n, rows, even or odd row, half of a tile, tile
        all = tl.reshape(tl.join(halves, others), [W, 8, 4, 2, 2, 2])
        square = tl.reshape(tl.permute(all, (0, 2, 3, 5, 4, 1)), [M, 32])
        live = group < count
        store_groups(OUT, OUT_INFO, square, out_row + 8 * t + row, group, out_step, live, M)
