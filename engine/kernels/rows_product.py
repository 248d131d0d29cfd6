"""Kernels of rows times matrices of integers: how tiles and segments spread over programs.

What a warp does with its share is in `integer_product.py`, and for a single row in `one_row.py`.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,attr-defined,var-annotated,union-attr,misc"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import unpack
from engine.kernels.dependent import wait
from engine.kernels.experts_route import awaited_words_of_row, choose_of_row
from engine.kernels.integer_product import (
    add_each,
    at_segment,
    block_quad_terms,
    input_of_blocks,
    input_of_rows,
    load_segment,
    no_terms,
    segment_terms,
)
from engine.kernels.one_row import row_quad_terms, row_terms


@triton.jit
def _quad_terms(acc, found, tail, x, left, lane, QUAD: tl.constexpr, FORM: tl.constexpr,
                NT: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr,
                ASM: tl.constexpr):  # fmt: skip
    if COLUMNS == 1 and ASM:
        acc = row_quad_terms(acc, found, tail, x, left, lane, QUAD, FORM, WHOLE)
    else:
        acc = block_quad_terms(acc, found, tail, x, left, QUAD, FORM, NT, COLUMNS, True, WHOLE, W,
                               ASM)  # fmt: skip
    return acc


@triton.jit
def segment_product(tile, x, segment, quads, groups, lane, FORM: tl.constexpr, NT: tl.constexpr,
                    COLUMNS: tl.constexpr, WHOLE: tl.constexpr, SKIP: tl.constexpr,
                    LOOP: tl.constexpr, AT_ONCE: tl.constexpr, W: tl.constexpr, ASM: tl.constexpr,
                    PDL: tl.constexpr):  # fmt: skip
    """A segment's weights times neighbouring rows: loads all of them, of two limbs only with
    AT_ONCE, waits for earlier kernels, and goes on as `segment_terms`. x: from the first segment
    on."""
    left = groups - segment * 16
    if LOOP:
        ahead, tail = quad_and_scales(tile, segment * 4, quads, lane, FORM, ASM)
        wait(PDL)
        acc, _, _, _ = quads_product(tile, x, x, lane, segment * 4, 4, ahead, tail, quads, groups,
                                     lane, FORM, NT, COLUMNS, WHOLE, False, W, ASM)  # fmt: skip
    elif FORM.bits == 16 and not AT_ONCE:
        # All of it would fill the registers. Two quads are under way while one is used.
        p = tile + segment * (4 * FORM.quad)
        more = quads - segment * 4 + lane * 0
        q0 = unpack.quad(p, lane, lane >= 0, 0, FORM, False, ASM)
        q1 = unpack.quad(p, lane, (more > 1).to(tl.int32), 1, FORM, not WHOLE, ASM)
        scales = tile + quads * FORM.quad + segment * (8 * FORM.tail) + lane // 4 * FORM.tail
        tail = unpack.words(scales, lane, 0, FORM.tail, False, ASM)
        wait(PDL)
        y = at_segment(x, segment, NT)
        acc = no_terms(NT, COLUMNS, W)
        acc = _quad_terms(acc, q0, tail, y, left, lane, 0, FORM, NT, COLUMNS, WHOLE, W, ASM)
        q2 = unpack.quad(p, lane, (more > 2).to(tl.int32), 2, FORM, not WHOLE, ASM)
        acc = _quad_terms(acc, q1, tail, y, left, lane, 1, FORM, NT, COLUMNS, WHOLE, W, ASM)
        q3 = unpack.quad(p, lane, (more > 3).to(tl.int32), 3, FORM, not WHOLE, ASM)
        acc = _quad_terms(acc, q2, tail, y, left, lane, 2, FORM, NT, COLUMNS, WHOLE, W, ASM)
        acc = _quad_terms(acc, q3, tail, y, left, lane, 3, FORM, NT, COLUMNS, WHOLE, W, ASM)
    else:
        weights = load_segment(tile, segment, quads, lane, FORM, WHOLE, ASM)
        wait(PDL)
        y = at_segment(x, segment, NT)
        if COLUMNS == 1:
            acc = row_terms(weights, y, left, lane, FORM, WHOLE, SKIP, W, ASM)
        else:
            acc = segment_terms(weights, y, left, FORM, NT, COLUMNS, True, WHOLE, SKIP, W, ASM)
    return acc


@triton.jit
def quad_and_scales(tile, quad, quads, lane, FORM: tl.constexpr, ASM: tl.constexpr):
    """A tile's quad of any number, and scales of its segment where the first quad finds its own."""
    words = unpack.quad(tile + quad * FORM.quad, lane, lane, 0, FORM, False, ASM)
    first = tile + quads * FORM.quad + quad // 4 * (8 * FORM.tail)
    found = unpack.words(first + lane // 4 * FORM.tail, lane, 0, FORM.tail, False, ASM)
    second = quad // 2 % 2
    out = ()
    COUNT: tl.constexpr = FORM.tail
    for i in tl.static_range(COUNT):
        if FORM.wide:
            out = out + (tl.where(second > 0, found[i // 2 * 2 + 1], found[i // 2 * 2]),)
        else:
            out = out + (found[i] >> (16 * second),)
    return words, out


@triton.jit
def places_of_input(CODES, INFO, step, blocks, lane, warp, NT: tl.constexpr):
    """Pointers to int32, 32 bytes apart, that reach all that a quad needs of the first limbs of one
    of the NT blocks of a program, and of their info; each warp has one of them."""
    first = (tl.minimum(tl.program_id(1) * NT + warp % NT, blocks - 1) * step).to(tl.int64)
    codes = CODES.to(tl.pointer_type(tl.int32)) + first * 128 + (lane // 8 * 128 + lane % 8 * 8)
    return codes, INFO.to(tl.pointer_type(tl.int32)) + first * 16 + lane % 8 * 8


@triton.jit
def brought_near(places, quad, before, FORM: tl.constexpr):
    """Reads a little of each 32 bytes of a quad's input, so that all of it is in the first cache
    when it is used. before: what the last call gave, on which this one depends; the last one of all
    goes to `used`. So nobody can leave out the loads."""
    own = before & 1
    found = tl.load(places[0] + quad * (4 * 128) + own)
    found = found ^ tl.load(places[1] + quad * (4 * 16) + own)
    if FORM.bits == 16:
        found = found ^ tl.load(places[0] + quad * (4 * 128) + 64 + own)
    return found


@triton.jit
def used(places, near):
    """See `brought_near`: an instruction that nobody can leave out, and without effect."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l",
        [(places[0] + (near & 1)).to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def quads_product(tile, x, places, near, first, count, ahead, tail, quads, groups, lane,
                  FORM: tl.constexpr, NT: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr,
                  NEAR: tl.constexpr, W: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """As `segment_terms` of `count` quads from `first` on, in a loop: code is short enough for its
    cache, and a quad is under way while one is used. ahead, tail: the first one, and behind the
    sums the one after the last. NEAR: input is brought near, too; near: see `brought_near`. WHOLE:
    quads have four groups."""
    acc = no_terms(NT, COLUMNS, W)
    for i in range(count):
        quad = first + i
        now = ahead
        its_tail = tail
        # At the end the last one again, which is near.
        ahead, tail = quad_and_scales(tile, tl.minimum(quad + 1, quads - 1), quads, lane, FORM, ASM)
        if NEAR:
            near = brought_near(places, tl.minimum(quad + 2, quads - 1), near, FORM)
        y = ()
        for t in tl.static_range(NT):
            info = x[3 * t + 1] + quad * (4 * 16)
            y = y + (x[3 * t] + quad * (4 * 128), info, info)
        acc = _quad_terms(acc, now, its_tail, y, groups - quad * 4, lane, 0, FORM, NT, COLUMNS,
                          WHOLE, W, ASM)  # fmt: skip
    return acc, ahead, tail, near


@triton.jit
def tile_product(tile, x, places, quads, groups, lane, FORM: tl.constexpr, NT: tl.constexpr,
                 COLUMNS: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr, ASM: tl.constexpr,
                 PDL: tl.constexpr):  # fmt: skip
    """All segments of a tile times NT blocks of rows. WHOLE: quads have four groups."""
    ahead, tail = quad_and_scales(tile, 0, quads, lane, FORM, ASM)
    wait(PDL)
    near = lane
    if ASM:
        near = brought_near(places, tl.minimum(1, quads - 1), lane, FORM)
    total = no_terms(NT, COLUMNS, W)
    for first in range(0, quads, 4):
        acc, ahead, tail, near = quads_product(
            tile, x, places, near, first, tl.minimum(quads - first, 4), ahead, tail, quads, groups,
            lane, FORM, NT, COLUMNS, WHOLE, ASM, W, ASM,
        )  # fmt: skip
        total = add_each(total, acc, 2 * NT * COLUMNS)
    if ASM:
        used(places, near)
    return total


@triton.jit
def residual_of(OUT, SHARES, row, n, N, live, STREAMS: tl.constexpr, SHARED: tl.constexpr):
    """What `put` adds to: numbers of STREAMS residuals, then their shares. They must lie there
    since the kernel before the last one; read past the cache of the first level."""
    found = ()
    for c in tl.static_range(STREAMS):
        at = OUT + (row.to(tl.int64) * STREAMS + c) * N + n
        found = found + (tl.load(at, mask=live, other=0.0, cache_modifier=".cg"),)
    for c in tl.static_range(STREAMS if SHARED else 0):
        at = SHARES + row.to(tl.int64) * STREAMS + c
        found = found + (tl.load(at, mask=live, other=0.0, cache_modifier=".cg"),)
    return found


@triton.jit
def put(OUT, value, found, AT: tl.constexpr, row, n, N, live, STREAMS: tl.constexpr,
        SHARED: tl.constexpr):  # fmt: skip
    """Stores results, OUT[row, n], or adds them to each of STREAMS residuals, times its share.
    found: what `residual_of` gave, from AT on."""
    if STREAMS == 0:
        tl.store(OUT + row.to(tl.int64) * N + n, value, mask=live)
    else:
        for c in tl.static_range(STREAMS):
            added = value
            if SHARED:
                added = found[AT + STREAMS + c] * value
            at = OUT + (row.to(tl.int64) * STREAMS + c) * N + n
            tl.store(at, found[AT + c] + added, mask=live)


@triton.jit
def _matrix_of(tile, matrices, rows, MATRICES: tl.constexpr):
    """Of a tile's number among the tiles of MATRICES matrices: the record of its matrix, its number
    there, outputs of that matrix, and numbers in the results of the ones before."""
    base = matrices[0].to(tl.int64) + tile * 0
    own = tile
    n = matrices[1] + tile * 0
    results = tile.to(tl.int64) * 0
    outputs = matrices[1]
    tiles = (outputs + 15) // 16
    for i in tl.static_range(1, MATRICES):
        later = tile >= tiles
        base = tl.where(later, matrices[2 * i].to(tl.int64), base)
        own = tl.where(later, tile - tiles, own)
        n = tl.where(later, matrices[2 * i + 1], n)
        results = tl.where(later, outputs.to(tl.int64) * rows, results)
        tiles = tiles + (matrices[2 * i + 1] + 15) // 16
        outputs = outputs + matrices[2 * i + 1]
    return base.to(tl.pointer_type(tl.int32)), own, n, results


@triton.jit
def _place(e, first, end, matrices, rows, MATRICES: tl.constexpr, NT: tl.constexpr,
           COLUMNS: tl.constexpr, TILES: tl.constexpr):  # fmt: skip
    """Of number e of a program's results: tile, place among a unit's parts, row, output, outputs of
    the matrix, whether it exists, and numbers in the results of the matrices before."""
    ROWS: tl.constexpr = 8 * NT if COLUMNS == 2 else 1
    r = e // (TILES * 16)
    n = e % (TILES * 16)
    tile = tl.minimum(first + n // 16, end - 1)
    if COLUMNS == 2:
        part = (r // 8 * 4 + n % 16 // 8 * 2 + r % 2) * 32 + n % 8 * 4 + r % 8 // 2
    else:
        part = n % 16 // 8 * 32 + n % 8 * 4
    row = tl.program_id(1) * ROWS + r
    _, own, N, results = _matrix_of(tile, matrices, rows, MATRICES)
    live = (r < ROWS) & (row < rows) & (first + n // 16 < end)
    n = own * 16 + n % 16
    return tile, part, row, n, N, live & (n < N), results


@triton.jit
def _own_place(tile, there, rows, N, lane, t: tl.constexpr, c: tl.constexpr, NT: tl.constexpr,
               COLUMNS: tl.constexpr):  # fmt: skip
    """Row and output of a thread's sum c of block t, and whether they exist."""
    n = tile * 16 + lane // 4 + c // COLUMNS * 8
    if COLUMNS == 2:
        row = (tl.program_id(1) * NT + t) * 8 + lane % 4 * 2 + c % 2
        live = there & (row < rows) & (n < N)
    else:
        row = tl.program_id(1) + lane * 0
        live = there & (lane % 4 == 0) & (n < N)
    return row, n, live


@triton.jit
def parts_of_tiles(first, end, x, matrices, PARTS, rows, quads, groups, FORM: tl.constexpr,
                   MATRICES: tl.constexpr, NT: tl.constexpr, COLUMNS: tl.constexpr,
                   WHOLE: tl.constexpr, LOOP: tl.constexpr, ALONE: tl.constexpr, W: tl.constexpr,
                   ASM: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """Segments' sums of the tiles from `first` on, of one form, to PARTS: a warp has one segment of
    one of them at a time. ALONE: the launch has no other form, registers are for this one."""
    thread = tl.arange(0, 32 * W)
    lane = thread % 32
    RESULTS: tl.constexpr = 2 * NT * COLUMNS
    segments = (quads + 3) // 4
    tile_words = quads * FORM.quad + segments * (8 * FORM.tail)
    units = (end - first) * segments
    for start in range(0, units, W):
        unit = tl.minimum(start + thread // 32, units - 1)
        segment = unit % segments
        tile = first + unit // segments
        base, own, _, _ = _matrix_of(tile, matrices, rows, MATRICES)
        at = base + own.to(tl.int64) * tile_words
        acc = segment_product(at, x, segment, quads, groups, lane, FORM, NT, COLUMNS, WHOLE, False,
                              LOOP, ALONE, W, ASM, PDL)  # fmt: skip
        part = tile.to(tl.int64) * segments + segment
        to = PARTS + part * (RESULTS * 32) + lane
        for c in tl.static_range(RESULTS):
            tl.store(to + c * 32, acc[c], mask=lane % 4 < (4 if COLUMNS == 2 else 1))


@triton.jit
def own_tiles(tile, x, places, matrices, rows, quads, groups, FORM: tl.constexpr,
              MATRICES: tl.constexpr, NT: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr,
              LOOP: tl.constexpr, ALONE: tl.constexpr, W: tl.constexpr, ASM: tl.constexpr,
              PDL: tl.constexpr):  # fmt: skip
    """All products of a tile of each warp, all of one form."""
    lane = tl.arange(0, 32 * W) % 32
    segments = (quads + 3) // 4
    tile_words = quads * FORM.quad + segments * (8 * FORM.tail)
    base, own, _, _ = _matrix_of(tile, matrices, rows, MATRICES)
    at = base + own.to(tl.int64) * tile_words
    if LOOP:
        total = tile_product(at, x, places, quads, groups, lane, FORM, NT, COLUMNS, WHOLE, W, ASM,
                             PDL)  # fmt: skip
    else:
        total = no_terms(NT, COLUMNS, W)
        for segment in range(segments):
            acc = segment_product(at, x, segment, quads, groups, lane, FORM, NT, COLUMNS, WHOLE,
                                  not WHOLE, False, ALONE, W, ASM, PDL)  # fmt: skip
            total = add_each(total, acc, 2 * COLUMNS)
    return total


@triton.constexpr_function
def _run_start(forms, i):
    """Where the i-th run of neighbours of the same form begins; behind the last: the end."""
    starts = [j for j in range(len(forms)) if j == 0 or forms[j] != forms[j - 1]]
    return [*starts, len(forms)][i]


@triton.constexpr_function
def _form(forms, i):
    """forms[i]; indexed in a kernel, Triton 3.6 gives no constant."""
    return forms[i]


@triton.constexpr_function
def _run_count(forms):
    return len([j for j in range(len(forms)) if j == 0 or forms[j] != forms[j - 1]])


@triton.constexpr_function
def _length(forms):
    return len(forms)


@triton.jit
def run_of_program(matrices, FORMS: tl.constexpr, EACH: tl.constexpr):
    """(run, program, begin, end, every): tiles are numbered through all matrices, and the EACH
    tiles of a program are of one run of the same form. `program` of the run's programs it is;
    begin, end: the run's tiles; every: tiles of all matrices."""
    program = tl.program_id(0)
    run = 0
    begin = 0
    end = 0
    for j in tl.static_range(0, _run_start(FORMS, 1)):
        end += (matrices[2 * j + 1] + 15) // 16
    every = end
    for i in tl.static_range(1, _run_count(FORMS)):
        tiles = 0
        for j in tl.static_range(_run_start(FORMS, i), _run_start(FORMS, i + 1)):
            tiles += (matrices[2 * j + 1] + 15) // 16
        before = (end - begin + (EACH - 1)) // EACH
        if (program >= before) & (run == i - 1):
            program -= before
            run = i
            begin = end
            end = end + tiles
        every += tiles
    return run, program, begin, end, every


@triton.jit(do_not_specialize=["N0", "N1", "N2", "N3", "N4", "rows", "quads", "groups", "step",
                               "programs"])  # fmt: skip
def rows_by_matrices(CODES, INFO, R0, N0, R1, N1, R2, N2, R3, N3, R4, N4, OUT, SHARES, PARTS, rows,
                     quads, groups, step, programs, EXPERTS, EXPERT_SHARES,
                     CHOSEN: tl.constexpr, AMONG: tl.constexpr,
                     FORMS: tl.constexpr, NT: tl.constexpr, COLUMNS: tl.constexpr,
                     TILES: tl.constexpr, SPLIT: tl.constexpr, LOOP: tl.constexpr,
                     WHOLE: tl.constexpr, STREAMS: tl.constexpr, SHARED: tl.constexpr,
                     W: tl.constexpr, ASM: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """Rows times up to five matrices (records R, outputs N) of the FORMS, the same next to each
    other. Grid (programs, blocks of 8 * NT rows, or rows where COLUMNS is 1).

    OUT: [rows, N] of each matrix, one after the other, or what `put` adds one matrix's result to.
    Without SPLIT a warp takes a tile and all its segments. With SPLIT a program takes TILES tiles,
    and a warp one segment of one of them at a time; PARTS, float32 [row blocks, tiles, segments,
    2 * NT * COLUMNS, 32], is where they meet. LOOP: a warp goes through quads in a
    loop. WHOLE: segments have 16 groups, or with LOOP and without SPLIT quads have four.

    CHOSEN: programs from `programs` on wait for the first matrix's results, logits of AMONG
    experts in memory for `awaited` numbers, and choose so many for W rows each, as `choose_of_row`
    does.
    """
    thread = tl.arange(0, 32 * W)
    lane = thread % 32
    if CHOSEN > 0:  # noqa: SIM102
        if tl.program_id(0) >= programs:
            wait(PDL)
            its_row = (tl.program_id(0) - programs) * W + thread // 32
            at = OUT.to(tl.pointer_type(tl.int32)) + its_row.to(tl.int64) * AMONG + lane
            words = awaited_words_of_row(at, its_row < rows, lane, AMONG, ASM)
            choose_of_row(words, EXPERTS, EXPERT_SHARES, its_row, its_row < rows, lane, AMONG,
                          CHOSEN, W, ASM)  # fmt: skip
            return
    if COLUMNS == 1:
        row = tl.program_id(1)
        x = input_of_rows(CODES, INFO, row, row, row, step, lane)
    else:
        x = input_of_blocks(CODES, INFO, tl.program_id(1) * NT, step, (rows + 7) // 8, lane, NT)
    matrices = (R0, N0, R1, N1, R2, N2, R3, N3, R4, N4)
    MATRICES: tl.constexpr = _length(FORMS)
    RUNS: tl.constexpr = _run_count(FORMS)
    EACH: tl.constexpr = TILES if SPLIT else W
    run, program, begin, end, every = run_of_program(matrices, FORMS, EACH)
    first = begin + program * EACH
    RESULTS: tl.constexpr = 2 * NT * COLUMNS
    ADDED: tl.constexpr = STREAMS * 2 if SHARED else STREAMS
    found = ()
    if SPLIT:
        COUNT: tl.constexpr = (8 * NT if COLUMNS == 2 else 1) * TILES * 16
        TIMES: tl.constexpr = (COUNT + 32 * W - 1) // (32 * W)
        segments = (quads + 3) // 4
        parts = PARTS + (tl.program_id(1) * every).to(tl.int64) * segments * (RESULTS * 32)
        end = tl.minimum(first + TILES, end)
        if STREAMS > 0:
            for i in tl.static_range(TIMES):
                _, _, row, n, N, live, _ = _place(i * 32 * W + thread, first, end, matrices, rows,
                                                  MATRICES, NT, COLUMNS, TILES)  # fmt: skip
                found = found + residual_of(OUT, SHARES, row, n, N, live, STREAMS, SHARED)
        for i in tl.static_range(RUNS):
            if RUNS == 1 or run == i:
                parts_of_tiles(first, end, x, matrices, parts, rows, quads, groups,
                               _form(FORMS, _run_start(FORMS, i)), MATRICES, NT, COLUMNS, WHOLE,
                               LOOP, RUNS == 1, W, ASM, PDL)  # fmt: skip
        tl.debug_barrier()
        for i in tl.static_range(TIMES):
            tile, part, row, n, N, live, results = _place(i * 32 * W + thread, first, end, matrices,
                                                          rows, MATRICES, NT, COLUMNS,
                                                          TILES)  # fmt: skip
            at = parts + tile.to(tl.int64) * segments * (RESULTS * 32) + part
            total = tl.zeros([32 * W], tl.float32)
            for s in range(0, segments, 8):
                some = ()
                for k in tl.static_range(8):
                    there = live & (thread * 0 + (s + k) < segments)
                    p = at + (s + k) * (RESULTS * 32)
                    some = some + (tl.load(p, mask=there, other=0.0),)
                for k in tl.static_range(8):
                    total = total + some[k]
            put(OUT + results, total, found, i * ADDED, row, n, N, live, STREAMS, SHARED)
    else:
        tile = tl.minimum(first + thread // 32, end - 1)
        places = places_of_input(CODES, INFO, step, (rows + 7) // 8, lane, thread // 32, NT)
        sums = no_terms(NT, COLUMNS, W)
        for i in tl.static_range(RUNS):
            if RUNS == 1 or run == i:
                sums = own_tiles(tile, x, places, matrices, rows, quads, groups,
                                 _form(FORMS, _run_start(FORMS, i)), MATRICES, NT, COLUMNS, WHOLE,
                                 LOOP, RUNS == 1, W, ASM, PDL)  # fmt: skip
        there = first + thread // 32 < end
        _, own, N, results = _matrix_of(tile, matrices, rows, MATRICES)
        if STREAMS > 0:
            for c in tl.static_range(RESULTS):
                row, n, live = _own_place(own, there, rows, N, lane, c // (2 * COLUMNS),
                                          c % (2 * COLUMNS), NT, COLUMNS)  # fmt: skip
                found = found + residual_of(OUT, SHARES, row, n, N, live, STREAMS, SHARED)
        for c in tl.static_range(RESULTS):
            row, n, live = _own_place(own, there, rows, N, lane, c // (2 * COLUMNS),
                                      c % (2 * COLUMNS), NT, COLUMNS)  # fmt: skip
            put(OUT + results, sums[c], found, c * ADDED, row, n, N, live, STREAMS, SHARED)


@triton.jit(do_not_specialize=["USED", "N", "quads", "groups", "step"])
def pairs_by_matrices(CODES, INFO, ADDRESSES, EXPERTS, OUT, USED, N, quads, groups, step,
                      FORM: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr, ASM: tl.constexpr,
                      PDL: tl.constexpr):  # fmt: skip
    """OUT[p] = row p // USED times the matrix at ADDRESSES[EXPERTS[p]]. Grid (tiles / W, pairs)."""
    thread = tl.arange(0, 32 * W)
    lane = thread % 32
    pair = tl.program_id(1)
    wait(PDL)
    record = tl.load(ADDRESSES + tl.load(EXPERTS + pair)).to(tl.pointer_type(tl.int32))
    row = pair // USED
    x = input_of_rows(CODES, INFO, row, row, row, step, lane)
    segments = (quads + 3) // 4
    tile = tl.program_id(0) * W + thread // 32
    words = quads * FORM.quad + segments * (8 * FORM.tail)
    at = record + tl.minimum(tile, (N + 15) // 16 - 1).to(tl.int64) * words
    total = no_terms(1, 1, W)
    for segment in range(segments):
        weights = load_segment(at, segment, quads, lane, FORM, WHOLE, ASM)
        acc = segment_terms(weights, at_segment(x, segment, 1), groups - segment * 16, FORM, 1, 1,
                            True, WHOLE, not WHOLE, W, ASM)  # fmt: skip
        total = add_each(total, acc, 2)
    for c in tl.static_range(2):
        n = tile * 16 + lane // 4 + c * 8
        tl.store(OUT + pair.to(tl.int64) * N + n, total[c], mask=(lane % 4 == 0) & (n < N))
