"""The walk of the gated delta rule: the rows of a span in turn, with the state in registers.

Order, as `engine/reference/gated_delta_net.py`: S = S * g; the error takes sum(S * k) over the keys
by 32 lanes and their tree; S = S + k * error; the output takes sum(S * q) the same way. Key lengths
up to 512, one segment.

A state is a tuple of [M, 32] tensors, M values, one for each 32 keys. On NVIDIA the lanes of a
value lie in eight neighbouring threads, four in each, and the tree's last three levels are
exchanges between them (a test reads from the compiled code that they do lie so); elsewhere the
compiler moves the lanes.
"""

# Tuples grow in loops that Triton unrolls.
# mypy: disable-error-code="assignment"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.dots import SHUFFLES, spread
from engine.kernels.lanes import tree


@triton.jit
def dot(a, b, M: tl.constexpr, GROUPS: tl.constexpr, SHUFFLE: tl.constexpr):
    """The groups in order, then the tree: M sums over GROUPS * 32 products, in all columns of
    [M, 8].

    SHUFFLE: thread t of eight has lanes 4t to 4t + 3 of a row, and threads exchange what they have;
    adding in either order gives the same bits. Lanes that start from 0 differ from those that start
    from a product only in the sign of a zero, and so do sums: 0 is added to those.
    """
    lanes = a[0] * b[0]
    for g in tl.static_range(1, GROUPS):
        lanes = lanes + a[g] * b[g]
    if SHUFFLE:
        left, right = tl.split(tl.reshape(lanes, [M, 16, 2]))
        left, right = tl.split(tl.reshape(left + right, [M, 8, 2]))
        total = left + right
        for other in tl.static_range(3):
            total = total + tl.inline_asm_elementwise(
                SHUFFLES[other], "=f,f", [total], dtype=tl.float32, is_pure=False, pack=1
            )
    else:
        total = tl.broadcast_to(tree(lanes, M)[:, None], [M, 8])
    return total + 0.0


@triton.jit
def step(
    state, row, zero, M: tl.constexpr, GROUPS: tl.constexpr, OUTPUT: tl.constexpr,
    SHUFFLE: tl.constexpr,
):  # fmt: skip
    """One row, as `row_at` loads it: the new state, the outputs [M, 8]."""
    q, k, v, a, b = row
    a = a + zero  # a is not -0
    faded = ()
    for g in tl.static_range(GROUPS):
        faded += (state[g] * a,)
    error = spread((v - dot(faded, k, M, GROUPS, SHUFFLE)) * b, M, 8)
    learnt = ()
    for g in tl.static_range(GROUPS):
        learnt += (faded[g] + k[g] * error,)
    return learnt, dot(learnt, q, M, GROUPS, SHUFFLE) if OUTPUT else v


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
    BASE, value, state, K: tl.constexpr, V: tl.constexpr, KEY_STRIDE: tl.constexpr,
    VALUE_STRIDE: tl.constexpr, M: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """As `load_state`."""
    lane = tl.arange(0, 32)[None, :]
    for g in tl.static_range(GROUPS):
        held = (value < V) & (g * 32 + lane < K)
        cell = BASE + value * VALUE_STRIDE + (g * 32 + lane) * KEY_STRIDE
        tl.store(cell, state[g], mask=held)


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
        state, out = step(state, row, zero, M, GROUPS, OUTPUT, SHUFFLE)
        row_ends(
            out_at, BASE, state, out, value, first, i, certain,
            H, K, V, KEY_STRIDE, VALUE_STRIDE, M, GROUPS, OUTPUT,
        )  # fmt: skip
        following = first + tl.minimum(i + 2, count - 1)
        row = row_at(q_at, k_at, v_at, a_at, following, value, H, K, V, ROW, GROUPS, OUTPUT)
        if i + 1 < count:
            tl.debug_barrier()
            zero = tl.load(ZERO)
            state, out = step(state, other, zero, M, GROUPS, OUTPUT, SHUFFLE)
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
def walk_certain(
    ROWS, GATES, OUT, BASE, state, value, head, first, certain, one,
    KH: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr, M: tl.constexpr, GROUPS: tl.constexpr,
    SHUFFLE: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """`walk` of the certain rows of a prompt; stores and returns the state.

    Memory takes longer than several rows: rows are copied to shared memory AHEAD - 1 rows before
    they are needed. The compiler does so with each load of the loop that gives more than a number,
    so decay and beta are loaded once a value.
    """
    ROW: tl.constexpr = 2 * KH * K + H * V
    values = tl.program_id(0) * M + tl.arange(0, M)
    q_at = ROWS + (head % KH) * K
    v_at = ROWS + 2 * KH * K + head * V + values
    a_at = GATES + head + values * 0
    out_at = OUT + head * V + value * one + tl.arange(0, 8)[None, :]
    live = (value < V) & (tl.arange(0, 8)[None, :] == 0)
    for row in tl.range(first, first + certain, num_stages=AHEAD):
        k = pieces_at(q_at + KH * K + row * ROW, K, GROUPS)
        a = tl.load(a_at + row * (2 * H))[:, None]
        b = tl.load(a_at + row * (2 * H) + H)[:, None]
        v = tl.load(v_at + row * ROW, mask=values < V, other=0.0)[:, None]
        q = pieces_at(q_at + row * ROW, K, GROUPS)
        state, out = step(state, (q, k, v, a, b), 0.0, M, GROUPS, True, SHUFFLE)
        tl.store(out_at + row * (H * V), out, mask=live)
    store_state(BASE, value, state, K, V, KEY_STRIDE, VALUE_STRIDE, M, GROUPS)
    return state


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
        store_state(BASE, value, state, K, V, KEY_STRIDE, VALUE_STRIDE, M, GROUPS)
