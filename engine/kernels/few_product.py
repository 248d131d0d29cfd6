"""One to four rows times matrices of integers: how units spread over warps and programs, with PTX.

A program takes some tiles. Each of its warps has a few units at once (see `few_rows.py`), whose
sums meet in shared memory, which the language cannot reach: through the second cache they would
need half a microsecond more.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,attr-defined,var-annotated,union-attr,misc"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.few_rows import (
    input_of_units,
    row_of_thread,
    rows_of_thread,
    unit_of_column,
    unit_of_thread,
    units_of,
    units_segment,
)
from engine.kernels.rows_product import (
    _form,
    _length,
    _matrix_of,
    _run_count,
    _run_start,
    put,
    residual_of,
    run_of_program,
)


@triton.constexpr_function
def _room_text(words):
    return f"{{ .shared .align 16 .b32 sums[{words}]; mov.u32 $0, sums; }}"


@triton.jit
def room(thread, WORDS: tl.constexpr):
    """Where WORDS words of shared memory lie."""
    return tl.inline_asm_elementwise(
        _room_text(WORDS), "=r,r", [thread], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def store_shared(at, value, ok):
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.s32 p, $3, 0; @p st.shared.b32 [$1], $2; mov.b32 $0, 0; }",
        "=r,r,r,r", [at, value.to(tl.int32, bitcast=True), ok.to(tl.int32)],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def load_shared(at):
    word = tl.inline_asm_elementwise(
        "ld.shared.b32 $0, [$1];", "=r,r", [at], dtype=tl.int32, is_pure=False, pack=1
    )
    return word.to(tl.float32, bitcast=True)


@triton.jit
def _of_run(matrices, FIRST: tl.constexpr, END: tl.constexpr):
    """Matrices FIRST to END - 1."""
    alike = ()
    for i in tl.static_range(2 * FIRST, 2 * END):
        alike = alike + (matrices[i],)
    return alike


@triton.constexpr_function
def _run_length(forms, i):
    return _run_start(forms, i + 1) - _run_start(forms, i)


@triton.jit
def sums_of_units(first, last, CODES, INFO, matrices, sums, rows, quads, groups,
                  FORM: tl.constexpr, MATRICES: tl.constexpr, ROWS: tl.constexpr,
                  TILES: tl.constexpr, WHOLE: tl.constexpr, AHEAD: tl.constexpr,
                  W: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """Segments' sums of TILES tiles from `first` on, of a run of matrices of one form, to shared
    memory, [segments, TILES, ROWS, 16]. `last`: of the run's tiles, taken again behind it."""
    thread = tl.arange(0, 32 * W)
    lane = thread % 32
    UNITS: tl.constexpr = units_of(FORM, ROWS)
    EACH: tl.constexpr = rows_of_thread(FORM, ROWS)
    segments = (quads + 3) // 4
    tile_words = quads * FORM.quad + segments * (8 * FORM.tail)
    count = TILES * segments
    x = input_of_units(CODES, INFO, lane, FORM, ROWS)
    row = row_of_thread(lane, FORM, ROWS)
    for start in range(0, count, W * UNITS):
        warp = start + thread // 32 * UNITS
        places = ()
        quad = ()
        for k in tl.static_range(UNITS):
            unit = tl.minimum(warp + k, count - 1)
            tile = tl.minimum(first + unit % TILES, last)
            base, number, _, _ = _matrix_of(tile, matrices, rows, MATRICES)
            at = base + (number.to(tl.int64) * tile_words + unit // TILES * (4 * FORM.quad))
            places = places + (at,)
            quad = quad + (unit // TILES * 4,)
        own_unit = warp + unit_of_thread(lane, FORM, ROWS)
        unit = tl.minimum(own_unit, count - 1)
        segment = unit // TILES
        tile = tl.minimum(first + unit % TILES, last)
        base, number, _, _ = _matrix_of(tile, matrices, rows, MATRICES)
        own_tile = base + number.to(tl.int64) * tile_words
        given = tl.minimum(warp + unit_of_column(lane, FORM, ROWS), count - 1) // TILES
        y = (x[0] + given * (16 * 128), x[1] + segment * (16 * 16))
        tail = own_tile + (quads * FORM.quad + segment * (8 * FORM.tail))
        own = own_tile + segment * (4 * FORM.quad)
        acc = units_segment(places, own, tail, quad, segment * 4, y, quads, groups, lane, FORM,
                            ROWS, AHEAD, WHOLE, W, PDL)  # fmt: skip
        at = sums + (unit * (4 * ROWS * 16) + row * (4 * 16) + lane // 4 * 4)
        live = own_unit < count
        for o in tl.static_range(2):
            for r in tl.static_range(EACH):
                store_shared(at + (4 * 16 * r + 4 * 8 * o), acc[o * EACH + r], live)


@triton.jit
def _place(e, first, last, matrices, rows, MATRICES: tl.constexpr, TILES: tl.constexpr):
    """Of number e of a program's results, [rows, TILES, 16]: row, output, outputs of its matrix,
    whether it exists, and numbers in the results of the matrices before."""
    row = e // (TILES * 16)
    tile = first + e % (TILES * 16) // 16
    _, own, N, results = _matrix_of(tl.minimum(tile, last), matrices, rows, MATRICES)
    n = own * 16 + e % 16
    return row, n, N, (row < rows) & (tile <= last) & (n < N), results


@triton.jit(do_not_specialize=["N0", "N1", "N2", "N3", "N4", "rows", "quads", "groups"])
def few_by_matrices(CODES, INFO, R0, N0, R1, N1, R2, N2, R3, N3, R4, N4, OUT, SHARES, rows, quads,
                    groups, FORMS: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr,
                    ROOM: tl.constexpr, AHEAD: tl.constexpr, WHOLE: tl.constexpr,
                    STREAMS: tl.constexpr, SHARED: tl.constexpr, W: tl.constexpr,
                    PDL: tl.constexpr):  # fmt: skip
    """As `rows_by_matrices`, of at most ROWS rows (1, 2 or 4). Grid (programs): a program takes
    TILES tiles of one form. ROOM: words of shared memory, at least one for each sum. WHOLE: all
    segments have 16 groups."""
    thread = tl.arange(0, 32 * W)
    matrices = (R0, N0, R1, N1, R2, N2, R3, N3, R4, N4)
    MATRICES: tl.constexpr = _length(FORMS)
    RUNS: tl.constexpr = _run_count(FORMS)
    sums = room(thread, ROOM)
    run, program, begin, end, _ = run_of_program(matrices, FORMS, TILES)
    first = begin + program * TILES
    COUNT: tl.constexpr = ROWS * TILES * 16
    TIMES: tl.constexpr = (COUNT + 32 * W - 1) // (32 * W)
    ADDED: tl.constexpr = STREAMS * 2 if SHARED else STREAMS
    found = ()
    if STREAMS > 0:
        for i in tl.static_range(TIMES):
            row, n, N, live, _ = _place(i * 32 * W + thread, first, end - 1, matrices, rows,
                                        MATRICES, TILES)  # fmt: skip
            found = found + residual_of(OUT, SHARES, row, n, N, live, STREAMS, SHARED)
    for i in tl.static_range(RUNS):
        if RUNS == 1 or run == i:
            alike = _of_run(matrices, _run_start(FORMS, i), _run_start(FORMS, i + 1))
            sums_of_units(program * TILES, end - begin - 1, CODES, INFO, alike, sums, rows, quads,
                          groups, _form(FORMS, _run_start(FORMS, i)), _run_length(FORMS, i), ROWS,
                          TILES, WHOLE, AHEAD, W, PDL)  # fmt: skip
    tl.debug_barrier()
    segments = (quads + 3) // 4
    for i in tl.static_range(TIMES):
        e = i * 32 * W + thread
        row, n, N, live, results = _place(e, first, end - 1, matrices, rows, MATRICES, TILES)
        tile = e % (TILES * 16) // 16
        # Behind the last number the first one again.
        at = sums + tl.where(e < COUNT, (tile * ROWS + row) * (4 * 16) + e % 16 * 4, 0)
        total = tl.zeros([32 * W], tl.float32)
        for s in range(0, segments, 4):
            some = ()
            for k in tl.static_range(4):
                which = tl.minimum(s + k, segments - 1)
                some = some + (load_shared(at + which * (4 * 16 * TILES * ROWS)),)
            for k in tl.static_range(4):
                total = total + tl.where(s + k < segments, some[k], 0.0)
        put(OUT + results, total, found, i * ADDED, row, n, N, live, STREAMS, SHARED)
