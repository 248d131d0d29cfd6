"""Products of routed and shared experts: gate and up in one launch, down in another.

A warp takes 16 outputs of one matrix. With many pairs it takes all their inputs, and loads a
segment while it computes the one before; for a single row two warps share the segments of a tile,
and meet at the end. An expert's weights serve all pairs of a block; where a block has one pair,
only that one is computed.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,union-attr,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import lanes, scalar, unpack
from engine.kernels.dependent import wait
from engine.kernels.experts_combine import combine_at
from engine.kernels.experts_many import TILES, gated_rows, tile_of, totals_of_tiles
from engine.kernels.inputs import store_groups
from engine.kernels.integer_product import (
    add_each,
    at_segment,
    block_quad_terms,
    input_of_blocks,
    input_of_rows,
    load_segment,
    no_terms,
)
from engine.kernels.one_row import row_quad_terms, row_terms


@triton.constexpr_function
def few_quads(form):
    """Quads that are loaded together where many warps shall fit: two, or one if they are large."""
    return 2 if form.bits < 8 else 1


@triton.constexpr_function
def many_quads(form):
    """The same where one tile is to come at once: a segment if it fits."""
    return {8: 4, 16: 1}.get(form.bits, 2)


@triton.jit
def load_part(tile, segment, quads, lane, PART: tl.constexpr, STEP: tl.constexpr,
              FORM: tl.constexpr, WHOLE: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """Loads STEP quads of a segment, as `load_segment` does the whole of it; with the first ones
    the segment's scales."""
    p = tile + segment * (4 * FORM.quad)
    left = quads - segment * 4 + lane * 0
    found = ()
    for i in tl.static_range(PART * STEP, PART * STEP + STEP):
        ok = (left > i).to(tl.int32)
        found = found + (unpack.quad(p, lane, ok, i, FORM, not WHOLE and i > 0, ASM),)
    if PART == 0:
        scales = tile + quads * FORM.quad + segment * (8 * FORM.tail) + lane // 4 * FORM.tail
        found = found + (unpack.words(scales, lane, 0, FORM.tail, False, ASM),)
    return found


@triton.jit
def totals(weights, tile, x, quads, groups, lane, STEP: tl.constexpr, FORM: tl.constexpr,
           COLUMNS: tl.constexpr, TOGETHER: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr,
           ASM: tl.constexpr):  # fmt: skip
    """Products of each thread's tile with its rows, as `segment_terms` orders them. weights: what
    `load_part` gave of the tile's first STEP quads; the next ones are under way while some are
    used, unless they are a whole segment."""
    segments = (quads + 3) // 4
    total = no_terms(1, COLUMNS, W)
    for segment in range(segments):
        acc = no_terms(1, COLUMNS, W)
        at = at_segment(x, segment, 1)
        left = groups - segment * 16
        tail = weights[STEP]
        for part in tl.static_range(4 // STEP):
            now = weights
            if STEP < 4:
                if part < 4 // STEP - 1:
                    weights = load_part(tile, segment, quads, lane, part + 1, STEP, FORM, WHOLE,
                                        ASM)  # fmt: skip
                else:
                    # At the end the last one again, which is near.
                    after = tl.minimum(segment + 1, segments - 1)
                    weights = load_part(tile, after, quads, lane, 0, STEP, FORM, WHOLE, ASM)
                at = pinned(at, lane, ASM)
            for i in tl.static_range(STEP):
                acc = some_quad_terms(acc, now[i], tail, at, left, lane, part * STEP + i, FORM,
                                      COLUMNS, TOGETHER, WHOLE, W, ASM)  # fmt: skip
        if STEP == 4 and segment + 1 < segments:
            weights = load_part(tile, segment + 1, quads, lane, 0, STEP, FORM, WHOLE, ASM)
        total = add_each(total, acc, 2 * COLUMNS)
    return total


@triton.jit
def pinned(x, lane, ASM: tl.constexpr):
    """Pointers x, not before the loads until now are under way: the compiler would move them down
    to their use, and each would be waited for."""
    found = x
    if ASM:
        zero = tl.inline_asm_elementwise(
            "bar.warp.sync 0xFFFFFFFF; mov.b32 $0, 0;", "=r,r", [lane], dtype=tl.int32,
            is_pure=False, pack=1,
        )  # fmt: skip
        found = ()
        for i in tl.static_range(len(x)):
            found = found + (x[i] + zero,)
    return found


@triton.jit
def tile_totals(tile, x, quads, groups, lane, FORM: tl.constexpr, COLUMNS: tl.constexpr,
                TOGETHER: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr,
                ASM: tl.constexpr):  # fmt: skip
    """As `totals`, by a few quads at a time."""
    STEP: tl.constexpr = few_quads(FORM)
    weights = load_part(tile, 0, quads, lane, 0, STEP, FORM, WHOLE, ASM)
    return totals(weights, tile, x, quads, groups, lane, STEP, FORM, COLUMNS, TOGETHER, WHOLE, W,
                  ASM)  # fmt: skip


@triton.jit
def some_quad_terms(acc, found, tail, x, left, lane, q: tl.constexpr, FORM: tl.constexpr,
                    COLUMNS: tl.constexpr, TOGETHER: tl.constexpr, WHOLE: tl.constexpr,
                    W: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """Adds the terms of quad q of a segment, if there is one."""
    if WHOLE or left > 4 * q:
        if COLUMNS == 1 and ASM:
            acc = row_quad_terms(acc, found, tail, x, left, lane, q, FORM, WHOLE)
        else:
            acc = block_quad_terms(acc, found, tail, x, left, q, FORM, 1, COLUMNS, TOGETHER, WHOLE,
                                   W, ASM)  # fmt: skip
    return acc


@triton.jit
def parts_of(tile, x, quads, groups, half, lane, FORM: tl.constexpr, SEGMENTS: tl.constexpr,
             WHOLE: tl.constexpr, W: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """The sums of each thread's half of the segments, one row: segment after segment, as
    `segment_terms` orders them. What is behind the last segment means nothing."""
    HALF: tl.constexpr = (SEGMENTS + 1) // 2
    AHEAD: tl.constexpr = FORM.bits < 8
    parts = ()
    ahead = load_segment(tile, half * HALF, quads, lane, FORM, WHOLE, ASM)
    for i in tl.static_range(HALF):
        segment = tl.minimum(half * HALF + i, SEGMENTS - 1)
        weights = ahead
        if i > 0 and not AHEAD:
            weights = load_segment(tile, segment, quads, lane, FORM, WHOLE, ASM)
        if i < HALF - 1 and AHEAD:
            after = tl.minimum(segment + 1, SEGMENTS - 1)
            ahead = load_segment(tile, after, quads, lane, FORM, WHOLE, ASM)
        parts = parts + row_terms(weights, at_segment(x, segment, 1), groups - segment * 16, lane,
                                  FORM, WHOLE, False, W, ASM)  # fmt: skip
    return parts


@triton.jit
def record_of(MATRICES, apart, expert, APART: tl.constexpr):
    """Where the matrix of an expert lies: MATRICES holds addresses, or with APART is the first of
    matrices that lie `apart` words apart, which saves waiting for an address."""
    if APART:
        at = MATRICES.to(tl.pointer_type(tl.int32)) + expert.to(tl.int64) * apart
    else:
        at = tl.load(MATRICES + expert).to(tl.pointer_type(tl.int32))
    return at


@triton.jit
def square(sums, at: tl.constexpr, COLUMNS: tl.constexpr, W: tl.constexpr):
    """Sums of a block of rows as [W / 2, 8 or 4 rows, 2 tiles, 16 outputs]; with one column, 4 rows
    that are all the same one."""
    if COLUMNS == 1:
        v = tl.reshape(tl.join(sums[at], sums[at + 1]), [W // 2, 2, 8, 4, 2])
        out = tl.permute(v, (0, 3, 1, 4, 2))
    else:
        low = tl.join(sums[at], sums[at + 1])
        high = tl.join(sums[at + 2], sums[at + 3])
        v = tl.reshape(tl.join(low, high), [W // 2, 2, 8, 4, 2, 2])
        out = tl.permute(v, (0, 3, 4, 1, 5, 2))
    R: tl.constexpr = 4 if COLUMNS == 1 else 8
    return tl.reshape(out, [W // 2, R * 32])


@triton.constexpr_function
def _column(segment, half, levels):
    """Where `apart` puts the column of a segment of gate, two before that of up: the bits of half,
    gate or up, and number in the half, in reverse."""
    number = segment % half
    return (((number & 1) << 3 | (number & 2) << 1) >> (2 - levels)) + segment // half


@triton.jit
def joined(parts, SEGMENTS: tl.constexpr):
    """Gate and up, [4 equal rows * 32] each, of what `parts_of` gave eight warps: two halves of the
    segments of two tiles of gate and two of up. The segments in ascending order."""
    HALF: tl.constexpr = (SEGMENTS + 1) // 2
    LEVELS: tl.constexpr = 0 if HALF == 1 else (1 if HALF == 2 else 2)
    M: tl.constexpr = 128
    all = square(parts, 0, 1, 8)
    if LEVELS > 0:
        all = tl.join(all, square(parts, 2, 1, 8))
    if LEVELS > 1:
        third = square(parts, 4, 1, 8)
        fourth = third
        if HALF > 3:
            fourth = square(parts, 6, 1, 8)
        all = tl.join(all, tl.join(third, fourth))
        all = tl.permute(all, (1, 0, 3, 2))
    elif LEVELS > 0:
        all = tl.permute(all, (1, 0, 2))
    else:
        all = tl.permute(all, (1, 0))
    # Axes: places, then bits of a column: half, gate or up, segment of the half.
    each = lanes.apart(tl.reshape(all, [M, 4 << LEVELS]), M, 2 + LEVELS)
    gate = tl.zeros([M], tl.float32)
    up = tl.zeros([M], tl.float32)
    for s in tl.static_range(SEGMENTS):
        gate = gate + tl.reshape(each[_column(s, HALF, LEVELS)], [M])
        up = up + tl.reshape(each[_column(s, HALF, LEVELS) + 2], [M])
    return gate, up


@triton.jit
def gated_group(GATE, UP, x, number, count, quads, groups, OUT, OUT_INFO, out_row, rows, out_step,
                GATE_FORM: tl.constexpr, UP_FORM: tl.constexpr, COLUMNS: tl.constexpr,
                SEGMENTS: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr,
                ASM: tl.constexpr):  # fmt: skip
    """silu(gate) * up as integers of the next product: program `number`, of which each stores a
    group of 32 outputs, of `count` groups.

    With one form for both: two tiles of gate and the same of up, by four warps, or by eight where
    there are SEGMENTS (not 0) to share. Otherwise W tiles of both, one after the other, which are
    W / 2 groups. rows: of eight (or one) from `out_row` on, which are stored.
    """
    thread = tl.arange(0, 32 * W)
    lane = thread % 32
    warp = thread // 32
    R: tl.constexpr = 8 if COLUMNS == 2 else 4
    if GATE_FORM == UP_FORM:
        tile = tile_of(tl.where(warp % 4 < 2, GATE, UP), number * 2 + warp % 2, quads, GATE_FORM)
        if SEGMENTS > 0:
            parts = parts_of(tile, x, quads, groups, warp // 4, lane, GATE_FORM, SEGMENTS, WHOLE, W,
                             ASM)  # fmt: skip
            g, u = joined(parts, SEGMENTS)
        else:
            sums = tile_totals(tile, x, quads, groups, lane, GATE_FORM, COLUMNS, False, WHOLE, W,
                               ASM)  # fmt: skip
            g, u = tl.split(tl.trans(square(sums, 0, COLUMNS, W)))
        h = tl.reshape(scalar.silu(g) * u, [R, 32])
        place = tl.arange(0, R)
        live = place < tl.where(number < count, rows, 0)
        store_groups(OUT, OUT_INFO, h, out_row + place, number, out_step, live, R)
    else:
        # Tiles behind the last one are computed as the first.
        at = number * W + warp
        at = tl.where(at < count * 2, at, 0)
        first = tile_totals(tile_of(GATE, at, quads, GATE_FORM), x, quads, groups, lane, GATE_FORM,
                            COLUMNS, False, WHOLE, W, ASM)  # fmt: skip
        second = tile_totals(tile_of(UP, at, quads, UP_FORM), x, quads, groups, lane, UP_FORM,
                             COLUMNS, False, WHOLE, W, ASM)  # fmt: skip
        M: tl.constexpr = W // 2 * R
        group = number * (W // 2) + tl.arange(0, M) // R
        row = tl.arange(0, M) % R
        h = scalar.silu(square(first, 0, COLUMNS, W)) * square(second, 0, COLUMNS, W)
        live = (row < rows) & (group < count)
        store_groups(OUT, OUT_INFO, tl.reshape(h, [M, 32]), out_row + row, group, out_step, live,
                     M)  # fmt: skip


@triton.jit
def expert_of(EXPERTS, ROUNDS, block, index, IN_ROUNDS: tl.constexpr):
    """The expert of a block, or a negative number where this round has nothing to do for it."""
    expert = tl.load(EXPERTS + block)
    if IN_ROUNDS:
        turn = tl.load(ROUNDS + tl.maximum(expert, 0))
        expert = tl.where(turn == index, expert, -1)
    return expert


@triton.jit
def gated_floats(G, U, first, rows, width, number, count, OUT, OUT_INFO, out_row, out_step,
                 W: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """silu(G) * U, float32 [rows, width], as integers of the next product: eight rows from `first`
    on and W of `count` groups."""
    M: tl.constexpr = 8 * W
    row = tl.arange(0, M) % 8
    group = number * W + tl.arange(0, M) // 8
    live = (first + row < rows) & (group < count)
    n = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    at = (first + row).to(tl.int64)[:, None] * width + n
    there = live[:, None] & (n < width)
    wait(PDL)
    g = tl.load(G + at, mask=there, other=0.0)
    u = tl.load(U + at, mask=there, other=0.0)
    store_groups(OUT, OUT_INFO, scalar.silu(g) * u, out_row + row, group, out_step, live, M)


@triton.jit
def place_of(program, blocks, programs, ALONE: tl.constexpr):
    """Number and block of a program. Where every pair is a block, the same outputs of all pairs are
    neighbours: pairs of one expert find its weights in the cache."""
    if ALONE:
        number = program // blocks
        block = program % blocks
    else:
        number = program % programs
        block = program // programs
    return number, block


_GATE_UP = ["gate_apart", "up_apart", "rows", "step", "quads", "groups", "count", "shared_width",
            "shared_count", "blocks", "index", "out_step", "programs", "shared_programs",
            "all_shared"]  # fmt: skip


@triton.jit(do_not_specialize=_GATE_UP,
            do_not_specialize_on_alignment=["PAIRS", "SHARED_GATE", "SHARED_UP"])  # fmt: skip
def gate_up(CODES, INFO, GATES, UPS, EXPERTS, PAIRS, ROUNDS, SHARED_GATE, SHARED_UP, OUT, OUT_INFO,
            gate_apart, up_apart, rows, step, quads, groups, count, shared_width, shared_count,
            blocks, index, out_step, programs, shared_programs, all_shared, USED: tl.constexpr,
            GATE_FORM: tl.constexpr, UP_FORM: tl.constexpr, NT: tl.constexpr, ALONE: tl.constexpr,
            APART: tl.constexpr, SEGMENTS: tl.constexpr, IN_ROUNDS: tl.constexpr,
            WHOLE: tl.constexpr, W: tl.constexpr, ASM: tl.constexpr,
            PDL: tl.constexpr):  # fmt: skip
    """silu(gate.x) * up.x of `blocks` blocks of 8 * NT pairs, then of the shared expert for all
    rows, as input of down, whose rows are those of blocks.

    Grid (all): first `all_shared` programs of the shared expert, `shared_programs` for eight rows,
    of its products, float32 SHARED_GATE and SHARED_UP [rows, shared_width]. Then `programs` a block
    of pairs. count: groups of 32 outputs. ALONE: pair p is block p, its expert EXPERTS[p];
    SEGMENTS: of the inputs where warps share them, or 0. APART: matrices lie as `record_of` says.
    IN_ROUNDS: only experts whose round is `index`; the shared one in round 0.
    """
    program = tl.program_id(0)
    lane = tl.arange(0, 32 * W) % 32
    if program < all_shared:
        if index > 0:
            wait(PDL)
            return
        first = program // shared_programs * 8
        gated_floats(SHARED_GATE, SHARED_UP, first, rows, shared_width, program % shared_programs,
                     shared_count, OUT, OUT_INFO, blocks * (8 * NT) + first, out_step, W,
                     PDL)  # fmt: skip
    else:
        number, block = place_of(program - all_shared, blocks, programs, ALONE)
        out_row = block * (8 * NT)
        pairs = PAIRS + out_row
        wait(PDL)
        if not ALONE:
            # Loaded before it is known whether they are needed.
            only, second = tl.load(pairs), tl.load(pairs + 1)
        expert = expert_of(EXPERTS, ROUNDS, block, index, IN_ROUNDS)
        if expert < 0:
            return
        gate = record_of(GATES, gate_apart, expert, APART)
        up = record_of(UPS, up_apart, expert, APART)
        if ALONE:
            row = block // USED
            x = input_of_rows(CODES, INFO, row, row, row, step, lane)
            gated_group(gate, up, x, number, count, quads, groups, OUT, OUT_INFO, out_row, 1,
                        out_step, GATE_FORM, UP_FORM, 1, SEGMENTS, WHOLE, W, ASM)  # fmt: skip
        elif NT > 1:
            many = ()
            for t in tl.static_range(NT):
                many = many + input_of_pairs(CODES, INFO, pairs + 8 * t, step, lane, USED)
            gated_rows(gate, up, many, number, count, quads, groups, OUT, OUT_INFO, out_row,
                       out_step, GATE_FORM, UP_FORM, NT, WHOLE, W, ASM)  # fmt: skip
        elif second < 0:
            its_row = only // USED
            one = input_of_rows(CODES, INFO, its_row, its_row, its_row, step, lane)
            gated_group(gate, up, one, number, count, quads, groups, OUT, OUT_INFO, out_row, 1,
                        out_step, GATE_FORM, UP_FORM, 1, 0, WHOLE, W, ASM)  # fmt: skip
        else:
            some = input_of_pairs(CODES, INFO, pairs, step, lane, USED)
            gated_group(gate, up, some, number, count, quads, groups, OUT, OUT_INFO, out_row, 8,
                        out_step, GATE_FORM, UP_FORM, 2, 0, WHOLE, W, ASM)  # fmt: skip


@triton.jit
def input_of_pairs(CODES, INFO, PAIRS, step, lane, USED: tl.constexpr):
    """A block of eight pairs as `input_of_rows` gives it."""
    row = tl.maximum(tl.load(PAIRS + lane // 4), 0) // USED
    even = tl.maximum(tl.load(PAIRS + lane % 4 * 2), 0) // USED
    odd = tl.maximum(tl.load(PAIRS + lane % 4 * 2 + 1), 0) // USED
    return input_of_rows(CODES, INFO, row, even, odd, step, lane)


@triton.jit
def store_rows(OUT, total, tile, width, ROWS, first, rows, lane, AT: tl.constexpr,
               NT: tl.constexpr, COLUMNS: tl.constexpr, GATHERED: tl.constexpr):  # fmt: skip
    """OUT[row, n] of each thread's products, from total[AT] on. GATHERED: rows ROWS[0..] where they
    are not negative; otherwise those from `first` on that are less than `rows`."""
    for t in tl.static_range(NT):
        for c in tl.static_range(2 * COLUMNS):
            n = tile * 16 + lane // 4 + c // COLUMNS * 8
            place = 8 * t + lane % 4 * 2 + c % 2 if COLUMNS == 2 else lane * 0
            row = tl.load(ROWS + place) if GATHERED else first + place
            live = (row >= 0) & (row < rows) & (n < width)
            if COLUMNS == 1:
                live = live & (lane % 4 == 0)
            at = OUT + row.to(tl.int64) * width + n
            tl.store(at, total[AT + t * 2 * COLUMNS + c], mask=live)


@triton.constexpr_function
def _quads_of_segment(quads, segment):
    return min(4, quads - 4 * segment)


@triton.jit
def load_tile(tile, lane, FORM: tl.constexpr, QUADS: tl.constexpr, ASM: tl.constexpr):
    """Loads a warp's weights: a tile of QUADS quads. Begins all loads, waits for none. Gives a
    tuple for each quad, then each segment's scales."""
    found = ()
    for q in tl.static_range(QUADS):
        found = found + (unpack.quad(tile, lane, lane, q, FORM, False, ASM),)
    for s in tl.static_range((QUADS + 3) // 4):
        scales = tile + (QUADS * FORM.quad + s * (8 * FORM.tail)) + lane // 4 * FORM.tail
        found = found + (unpack.words(scales, lane, 0, FORM.tail, False, ASM),)
    return found


@triton.jit
def tile_terms(weights, x, groups, lane, FORM: tl.constexpr, COLUMNS: tl.constexpr,
               TOGETHER: tl.constexpr, QUADS: tl.constexpr, FULL: tl.constexpr, W: tl.constexpr,
               ASM: tl.constexpr):  # fmt: skip
    """What `totals` gives, of what `load_tile` gave. FULL: all quads have four groups."""
    total = no_terms(1, COLUMNS, W)
    for s in tl.static_range((QUADS + 3) // 4):
        acc = no_terms(1, COLUMNS, W)
        at = at_segment(x, s, 1)
        for q in tl.static_range(_quads_of_segment(QUADS, s)):
            if COLUMNS == 1 and ASM:
                acc = row_quad_terms(acc, weights[4 * s + q], weights[QUADS + s], at,
                                     groups - 16 * s, lane, q, FORM, FULL)  # fmt: skip
            else:
                acc = block_quad_terms(acc, weights[4 * s + q], weights[QUADS + s], at,
                                       groups - 16 * s, q, FORM, 1, COLUMNS, TOGETHER, FULL, W,
                                       ASM)  # fmt: skip
        total = add_each(total, acc, 2 * COLUMNS)
    return total


@triton.jit
def products_of_tiles(record, x, OUT, ROWS, begin, each, tiles, quads, groups, width, first, rows,
                      FORM: tl.constexpr, COLUMNS: tl.constexpr, GATHERED: tl.constexpr,
                      QUADS: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr, ASM: tl.constexpr,
                      PDL: tl.constexpr):  # fmt: skip
    """Products of `each` tiles a warp with one block of rows, from `begin` on, stored as
    `store_rows` says. QUADS: of a tile that fits in registers as a whole, or 0. WHOLE: quads have
    four groups each where tiles fit, else segments 16. The first weights come before the wait;
    where tiles are small, one is loaded while the one before is computed."""
    lane = tl.arange(0, 32 * W) % 32
    SMALL: tl.constexpr = QUADS * (FORM.codes + FORM.low + FORM.numbers + FORM.scales) <= 40
    STEP: tl.constexpr = many_quads(FORM)
    at = tile_of(record, tl.minimum(begin, tiles - 1), quads, FORM)
    if QUADS > 0:
        weights = load_tile(at, lane, FORM, QUADS, ASM)
    else:
        weights = load_part(at, 0, quads, lane, 0, STEP, FORM, WHOLE, ASM)
    wait(PDL)
    for i in range(each):
        after = tile_of(record, tl.minimum(begin + i + 1, tiles - 1), quads, FORM)
        if QUADS > 0:
            now = weights
            if SMALL and i + 1 < each:
                weights = load_tile(after, lane, FORM, QUADS, ASM)
            y = tile_terms(now, x, groups, lane, FORM, COLUMNS, True, QUADS, WHOLE, W, ASM)
            if not SMALL and i + 1 < each:
                weights = load_tile(after, lane, FORM, QUADS, ASM)
        else:
            y = totals(weights, at, x, quads, groups, lane, STEP, FORM, COLUMNS, True, WHOLE, W,
                       ASM)  # fmt: skip
            if i + 1 < each:
                weights = load_part(after, 0, quads, lane, 0, STEP, FORM, WHOLE, ASM)
            at = after
        store_rows(OUT, y, begin + i, width, ROWS, first, rows, lane, 0, 1, COLUMNS,
                   GATHERED)  # fmt: skip


@triton.jit
def rows_of_tiles(record, x, OUT, ROWS, begin, tiles, quads, groups, width, first, rows,
                  FORM: tl.constexpr, NT: tl.constexpr, GATHERED: tl.constexpr, WHOLE: tl.constexpr,
                  W: tl.constexpr, ASM: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """The same with NT blocks of rows, TILES tiles a warp."""
    lane = tl.arange(0, 32 * W) % 32
    where = ()
    for t in tl.static_range(TILES):
        where = where + (tile_of(record, tl.minimum(begin + t, tiles - 1), quads, FORM),)
    total = totals_of_tiles(where, x, quads, groups, lane, TILES, FORM, NT, True, WHOLE, W, ASM,
                            PDL)  # fmt: skip
    for t in tl.static_range(TILES):
        store_rows(OUT, total, begin + t, width, ROWS, first, rows, lane, 4 * NT * t, NT, 2,
                   GATHERED)  # fmt: skip


_DOWN = ["apart", "rows", "pairs", "step", "quads", "groups", "shared_quads", "shared_groups",
         "tiles", "width", "blocks", "index", "each", "programs", "shared_programs",
         "all_shared"]  # fmt: skip


@triton.jit(do_not_specialize=_DOWN,
            do_not_specialize_on_alignment=["PAIRS", "STREAMS", "SHARES", "GATE"])  # fmt: skip
def down(CODES, INFO, DOWNS, EXPERTS, PAIRS, ROUNDS, SHARED, OUT, SHARED_OUT, RESIDUAL, STREAMS,
         SHARES, GATE, apart, rows, pairs, step, quads, groups, shared_quads, shared_groups, tiles,
         width, blocks, index, each, programs, shared_programs, all_shared,
         FORM: tl.constexpr, SHARED_FORM: tl.constexpr, USED: tl.constexpr, COUNT: tl.constexpr,
         NT: tl.constexpr, ALONE: tl.constexpr, ONE: tl.constexpr, APART: tl.constexpr,
         IN_ROUNDS: tl.constexpr, QUADS: tl.constexpr, SHARED_QUADS: tl.constexpr,
         WHOLE: tl.constexpr, SHARED_WHOLE: tl.constexpr, ASM: tl.constexpr,
         PDL: tl.constexpr):  # fmt: skip
    """down of what `gate_up` made: OUT [pairs, width] and SHARED_OUT [rows, width], and unless USED
    is 0 their sums as `experts_combine.Sums` says; USED and COUNT as it has them.

    Grid (all): first `all_shared` programs of the shared expert, `shared_programs` a block of rows;
    then `programs` a block of pairs, `each` tiles a warp, then those that sum. ONE: there is one
    row. Experts, pairs and weights were there before `gate_up` began: they are read before the
    wait.
    """
    W: tl.constexpr = 4
    thread = tl.arange(0, 32 * W)
    lane = thread % 32
    warp = thread // 32
    program = tl.program_id(0)
    if USED > 0:
        number = program - all_shared - blocks * programs
        if number >= 0:
            wait(PDL)
            parts = (width + 32 * W - 1) // (32 * W)
            d = number % parts * (32 * W) + thread
            combine_at(RESIDUAL, STREAMS, SHARES, GATE, OUT, SHARED_OUT, number // parts, d,
                       d < width, width, USED, COUNT, True, ASM)  # fmt: skip
            return
    if program < all_shared:
        if index > 0:
            wait(PDL)
            return
        place = program // shared_programs
        block = blocks + place
        begin = program % shared_programs * W + warp
        own = SHARED.to(tl.pointer_type(tl.int32))
        if NT > 1:
            rows_of = input_of_blocks(CODES, INFO, block * NT, step, block * NT + NT, lane, NT)
            rows_of_tiles(own, rows_of, SHARED_OUT, PAIRS, begin * TILES, tiles, shared_quads,
                          shared_groups, width, place * (8 * NT), rows, SHARED_FORM, NT, False,
                          SHARED_WHOLE, W, ASM, PDL)  # fmt: skip
        else:
            few = input_of_blocks(CODES, INFO, block, step, block + 1, lane, 1)
            if ONE:
                few = input_of_rows(CODES, INFO, block * 8, block * 8, block * 8, step, lane)
            products_of_tiles(own, few, SHARED_OUT, PAIRS, begin, 1, tiles, shared_quads,
                              shared_groups, width, place * 8, rows, SHARED_FORM,
                              1 if ONE else 2, False, SHARED_QUADS, SHARED_WHOLE, W, ASM,
                              PDL)  # fmt: skip
    else:
        number, block = place_of(program - all_shared, blocks, programs, ALONE)
        begin = (number * W + warp) * each
        first = block * (8 * NT)
        where = PAIRS + first
        if not ALONE:
            only, second = tl.load(where), tl.load(where + 1)
        expert = expert_of(EXPERTS, ROUNDS, block, index, IN_ROUNDS)
        if expert < 0:
            wait(PDL)
            return
        record = record_of(DOWNS, apart, expert, APART)
        if ALONE:
            x = input_of_rows(CODES, INFO, first, first, first, step, lane)
            products_of_tiles(record, x, OUT, where, begin, each, tiles, quads, groups, width,
                              block, pairs, FORM, 1, False, QUADS, WHOLE, W, ASM, PDL)  # fmt: skip
        elif NT > 1:
            many = input_of_blocks(CODES, INFO, block * NT, step, block * NT + NT, lane, NT)
            rows_of_tiles(record, many, OUT, where, begin, tiles, quads, groups, width, 0, pairs,
                          FORM, NT, True, WHOLE, W, ASM, PDL)  # fmt: skip
        elif second < 0:
            one = input_of_rows(CODES, INFO, first, first, first, step, lane)
            products_of_tiles(record, one, OUT, where, begin, each, tiles, quads, groups, width,
                              only, pairs, FORM, 1, False, QUADS, WHOLE, W, ASM, PDL)  # fmt: skip
        else:
            some = input_of_blocks(CODES, INFO, block, step, block + 1, lane, 1)
            products_of_tiles(record, some, OUT, where, begin, each, tiles, quads, groups, width, 0,
                              pairs, FORM, 2, True, QUADS, WHOLE, W, ASM, PDL)  # fmt: skip
