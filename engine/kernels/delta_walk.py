"""The walk of the gated delta rule: the rows of a span in turn, with the state in registers.

Order, as `engine/reference/gated_delta_net.py`: S = S * g; the error takes sum(S * k) over the keys
by 32 lanes and their tree; S = S + k * error; the output takes sum(S * q) the same way. Key lengths
up to 512, one segment.

A state is a tuple of [M, 32] tensors: for each tile of M values one for each 32 keys. Its lanes lie
in threads as `dots.py` says. In short windows a program has one tile of several warps, so that
states come fast. In prompts it is one warp with several tiles, which share what is read of a row.
"""

# Tuples grow in loops that Triton unrolls.
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.dependent import wait
from engine.kernels.dots import add, exchanged, finished, products, spread, zeros


@triton.jit
def tile_products(
    state, x, K: tl.constexpr, M: tl.constexpr, TILES: tl.constexpr, SHUFFLE: tl.constexpr
):  # fmt: skip
    """`products` of x, a tuple of [1, 32] or [M, 32], with the state of each tile."""
    parts = ()
    for tile in tl.static_range(TILES):
        parts += products(x, state, tile * ((K + 31) // 32), K, M, SHUFFLE)
    return parts


@triton.jit
def tile_sums(parts, COUNT: tl.constexpr, K: tl.constexpr, M: tl.constexpr, SHUFFLE: tl.constexpr):
    """The sums [M, 8] that so many parts began. Lanes that start from 0 differ from those that
    start from a product only in the sign of a zero, and so do sums: 0 is added to those."""
    sums = parts
    if SHUFFLE:
        # All parts exchange before one needs what it got: that takes long.
        for other in tl.static_range(3):
            sums = add(sums, exchanged(sums, other, COUNT), COUNT)
    else:
        sums = ()
        for part in tl.static_range(COUNT):
            sums += (finished(parts, part, K, M, False),)
    return add(sums, zeros(COUNT, M, 8), COUNT)


@triton.jit
def columns(sums, FIRST: tl.constexpr, COUNT: tl.constexpr):
    """sums[FIRST], ..., each [M, 8] with equal columns, as the columns of one."""
    column = tl.arange(0, 8)[None, :]
    out = sums[FIRST]
    for i in tl.static_range(1, COUNT):
        out = tl.where(column == i, sums[FIRST + i], out)
    return out


@triton.jit
def faded(state, a, TILES: tl.constexpr, GROUPS: tl.constexpr):
    """S * g."""
    after = ()
    for i in tl.static_range(TILES * GROUPS):
        after += (state[i] * a,)
    return after


@triton.jit
def learnt(
    state, k, v, b, sums, M: tl.constexpr, TILES: tl.constexpr, GROUPS: tl.constexpr
):  # fmt: skip
    """S + k * error. v: [M, 1] of each tile; sums: of S * k, [M, 8] of each."""
    after = ()
    for tile in tl.static_range(TILES):
        error = spread((v[tile] - sums[tile]) * b, M, 8)
        for g in tl.static_range(GROUPS):
            after += (state[tile * GROUPS + g] + k[g] * error,)
    return after


@triton.jit
def step(
    state, row, zero, K: tl.constexpr, M: tl.constexpr, GROUPS: tl.constexpr,
    OUTPUT: tl.constexpr, SHUFFLE: tl.constexpr,
):  # fmt: skip
    """One row of one tile, as `row_at` loads it: the new state, the outputs [M, 8]."""
    q, k, v, a, b = row
    state = faded(state, a + zero, 1, GROUPS)  # a is not -0
    sums = tile_sums(tile_products(state, k, K, M, 1, SHUFFLE), 1, K, M, SHUFFLE)
    state = learnt(state, k, (v,), b, sums, M, 1, GROUPS)
    if OUTPUT:
        sums = tile_sums(tile_products(state, q, K, M, 1, SHUFFLE), 1, K, M, SHUFFLE)
    return state, sums[0]


@triton.jit
def load_state(
    BASE, value, K: tl.constexpr, V: tl.constexpr, KEY_STRIDE: tl.constexpr,
    VALUE_STRIDE: tl.constexpr, M: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """The state of values `value`, [M, 1], past the cache of the first level: see `walk_spans`."""
    lane = tl.arange(0, 32)[None, :]
    state = ()
    for g in tl.static_range(GROUPS):
        held = (value < V) & (g * 32 + lane < K)
        cell = BASE + value * VALUE_STRIDE + (g * 32 + lane) * KEY_STRIDE
        state += (tl.load(cell, mask=held, other=0.0, cache_modifier=".cg"),)
    return state


@triton.jit
def store_state(
    BASE, value, state, FIRST: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr, M: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """As `load_state`, from state[FIRST] on."""
    lane = tl.arange(0, 32)[None, :]
    for g in tl.static_range(GROUPS):
        held = (value < V) & (g * 32 + lane < K)
        cell = BASE + value * VALUE_STRIDE + (g * 32 + lane) * KEY_STRIDE
        tl.store(cell, state[FIRST + g], mask=held)


@triton.jit
def keys_at(AT, K: tl.constexpr, GROUPS: tl.constexpr):
    """K values in memory from each of the pointers AT, [M, 1]: a tuple of [M, 32]."""
    lane = tl.arange(0, 32)[None, :]
    parts = ()
    for g in tl.static_range(GROUPS):
        if K % 32 == 0:
            parts += (tl.load(AT + (g * 32 + lane)),)
        else:
            parts += (tl.load(AT + (g * 32 + lane), mask=g * 32 + lane < K, other=0.0),)
    return parts


@triton.jit
def row_at(
    q_at, k_at, v_at, a_at, row, value,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, ROW: tl.constexpr, GROUPS: tl.constexpr,
    OUTPUT: tl.constexpr,
):  # fmt: skip
    """Queries (where wanted), keys, values, decay and beta of a row."""
    k = keys_at(k_at + row * ROW, K, GROUPS)
    q = keys_at(q_at + row * ROW, K, GROUPS) if OUTPUT else k
    v = tl.load(v_at + row * ROW, mask=value < V, other=0.0)
    return q, k, v, tl.load(a_at + row * (2 * H)), tl.load(a_at + row * (2 * H) + H)


@triton.jit
def walk(
    ROWS, GATES, OUT, ZERO, BASE, state, value, head, first, count, certain, one,
    KH: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr, M: tl.constexpr, GROUPS: tl.constexpr,
    OUTPUT: tl.constexpr, SHUFFLE: tl.constexpr,
):  # fmt: skip
    """Rows first .. first + count - 1 of one head and M values.

    ROWS: float32 [R, channels], queries and keys scaled; GATES: [R, 2 * H], decays and betas; OUT:
    [R, H * V], written where OUTPUT. BASE, state, value: as `load_state`; the state after `certain`
    rows is stored, draft rows go on in registers only.

    All tensors of a row have the layout of the state, in which a value's keys lie in eight threads:
    so queries and keys are loaded by each thread that needs them, and `one`, a stride of 1 that the
    compiler does not know, keeps it from another layout for values.

    A row's loads must be on their way while the row before is computed, and compilers like to put
    loads next to their use. None is moved across a barrier, so a row waits for a zero that is
    loaded behind one.
    """
    ROW: tl.constexpr = 2 * KH * K + H * V
    q_at = ROWS + (head % KH) * K + value * 0
    k_at = q_at + KH * K
    v_at = ROWS + 2 * KH * K + head * V + value
    a_at = GATES + head
    out_at = OUT + head * V + value * one + tl.arange(0, 8)[None, :]
    row = row_at(q_at, k_at, v_at, a_at, first, value, H, K, V, ROW, GROUPS, OUTPUT)
    # Two rows a turn: what was loaded needs no other registers then.
    for pair in range((count + 1) // 2):
        i = 2 * pair
        following = first + tl.minimum(i + 1, count - 1)
        other = row_at(q_at, k_at, v_at, a_at, following, value, H, K, V, ROW, GROUPS, OUTPUT)
        tl.debug_barrier()
        zero = tl.load(ZERO)
        state, out = step(state, row, zero, K, M, GROUPS, OUTPUT, SHUFFLE)
        row_ends(
            out_at, BASE, state, out, value, first, i, certain,
            H, K, V, KEY_STRIDE, VALUE_STRIDE, M, GROUPS, OUTPUT,
        )  # fmt: skip
        following = first + tl.minimum(i + 2, count - 1)
        row = row_at(q_at, k_at, v_at, a_at, following, value, H, K, V, ROW, GROUPS, OUTPUT)
        if i + 1 < count:
            tl.debug_barrier()
            zero = tl.load(ZERO)
            state, out = step(state, other, zero, K, M, GROUPS, OUTPUT, SHUFFLE)
            row_ends(
                out_at, BASE, state, out, value, first, i + 1, certain,
                H, K, V, KEY_STRIDE, VALUE_STRIDE, M, GROUPS, OUTPUT,
            )  # fmt: skip


@triton.jit
def pieces_at(AT, K: tl.constexpr, GROUPS: tl.constexpr):
    """K values in memory from AT on: a tuple of [1, 32]."""
    lane = tl.arange(0, 32)
    parts = ()
    for g in tl.static_range(GROUPS):
        if K % 32 == 0:
            part = tl.load(AT + (g * 32 + lane))
        else:
            part = tl.load(AT + (g * 32 + lane), mask=g * 32 + lane < K, other=0.0)
        parts += (part[None, :],)
    return parts


@triton.jit
def walk_ahead(
    ROWS, GATES, OUT, BASE, head, first, count, certain, one,
    KH: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr, M: tl.constexpr, TILES: tl.constexpr,
    GROUPS: tl.constexpr, SHUFFLE: tl.constexpr, AHEAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """`walk` for prompts, from loading the state on: TILES * M values of one head.

    Memory takes longer than several rows: rows are copied to shared memory AHEAD - 1 rows before
    they are needed. The compiler does so with each load of the loop that gives more than a number,
    so decay and beta are loaded once a value. Exchanges between threads take long, too: those for a
    row's outputs wait for those for the next row's error.
    """
    ROW: tl.constexpr = 2 * KH * K + H * V
    begin = tl.program_id(0) * (TILES * M)
    values = begin + tl.arange(0, M)
    state = ()
    for tile in tl.static_range(TILES):
        value = (values + tile * M)[:, None]
        state += load_state(BASE, value, K, V, KEY_STRIDE, VALUE_STRIDE, M, GROUPS)
    wait(PDL)
    k_at = ROWS + (KH + head % KH) * K
    v_at = ROWS + 2 * KH * K + head * V + values
    a_at = GATES + head + values * 0
    # Columns are the tiles: one store a row.
    column = tl.arange(0, 8)[None, :]
    mine = begin + column * M + tl.arange(0, M)[:, None]
    out_at = OUT + head * V + mine * one
    start, end = first, first + certain
    for part in range(2):  # the certain rows, and drafts, which change no state
        waiting = zeros(TILES, M, 8 if SHUFFLE else 32)
        for row in tl.range(start, end, num_stages=AHEAD):
            k = pieces_at(k_at + row * ROW, K, GROUPS)
            a = tl.load(a_at + row * (2 * H))[:, None]
            b = tl.load(a_at + row * (2 * H) + H)[:, None]
            v = ()
            for tile in tl.static_range(TILES):
                inside = values + tile * M < V
                v += (tl.load(v_at + row * ROW + tile * M, mask=inside, other=0.0)[:, None],)
            q = pieces_at(k_at + row * ROW - KH * K, K, GROUPS)
            state = faded(state, a, TILES, GROUPS)
            parts = tile_products(state, k, K, M, TILES, SHUFFLE) + waiting
            sums = tile_sums(parts, 2 * TILES, K, M, SHUFFLE)
            live = (mine < tl.where(row > start, V, 0)) & (column < TILES)
            tl.store(out_at + (row - 1) * (H * V), columns(sums, TILES, TILES), mask=live)
            state = learnt(state, k, v, b, sums, M, TILES, GROUPS)
            waiting = tile_products(state, q, K, M, TILES, SHUFFLE)
        sums = tile_sums(waiting, TILES, K, M, SHUFFLE)
        live = (mine < tl.where(end > start, V, 0)) & (column < TILES)
        tl.store(out_at + (end - 1) * (H * V), columns(sums, 0, TILES), mask=live)
        if part == 0:
            for tile in tl.static_range(TILES):
                value = (values + tile * M)[:, None]
                store_state(
                    BASE, value, state, tile * GROUPS, K, V, KEY_STRIDE, VALUE_STRIDE, M, GROUPS
                )
        start, end = end, first + count


@triton.jit
def row_ends(
    out_at, BASE, state, out, value, first, i, certain,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KEY_STRIDE: tl.constexpr,
    VALUE_STRIDE: tl.constexpr, M: tl.constexpr, GROUPS: tl.constexpr, OUTPUT: tl.constexpr,
):  # fmt: skip
    """Stores a row's outputs, and the state if the row is the last certain one."""
    if OUTPUT:
        live = (value < V) & (tl.arange(0, 8)[None, :] == 0)
        tl.store(out_at + (first + i) * (H * V), out, mask=live)
    if i + 1 == certain:
        store_state(BASE, value, state, 0, K, V, KEY_STRIDE, VALUE_STRIDE, M, GROUPS)
