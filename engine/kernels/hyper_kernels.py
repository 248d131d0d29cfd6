"""Kernels of hyper-connections; `hyper_connections.py` says what they compute and launches them."""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,misc,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.dependent import announce, wait
from engine.kernels.float_product import added, chosen, finished, rows_of, store, whole, zeros
from engine.kernels.inputs import store_groups
from engine.kernels.lanes import add_in_order, tree, trees
from engine.kernels.scalar import sigmoid


@triton.jit(do_not_specialize=["n", "m"])
def low(
    STREAMS, NORM, DOWN, INJECT, OUT, FACTORS, n, m, eps, SEGMENTS: tl.constexpr,
    LEVELS: tl.constexpr, STREAM_LEVELS: tl.constexpr, OUTPUTS: tl.constexpr,
    COUNT: tl.constexpr, KINDS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row's activated products with DOWN (n outputs) and INJECT (m outputs), one after the
    other in OUT, and FACTORS of the norms of its 2**STREAM_LEVELS streams of SEGMENTS <= 2**LEVELS
    segments each. Grid (blocks of OUTPUTS <= 4 outputs of DOWN, then of INJECT). COUNT: matrices.
    """
    announce(PDL)
    S: tl.constexpr = 1 << LEVELS
    C: tl.constexpr = 1 << STREAM_LEVELS
    K: tl.constexpr = SEGMENTS * C * 512
    record, count, before, block, index = chosen(
        tl.program_id(0), DOWN, INJECT, INJECT, INJECT, n, m, m, m, OUTPUTS, COUNT
    )
    # Axes: segments of a stream, streams, lanes. The segments of a stream lie in different warps.
    s = tl.arange(0, S)[:, None, None]
    c = tl.arange(0, C)[None, :, None]
    lane = tl.arange(0, 32)[None, None, :]
    live = (s < SEGMENTS) & (c >= 0) & (lane >= 0)
    segment = c * SEGMENTS + s
    at = segment * 512 + lane
    weights = ()
    for o in tl.static_range(OUTPUTS):
        out = tl.minimum(block * OUTPUTS + o, count - 1)
        base = record + (out // 4).to(tl.int64) * (K * 4) + out % 4 * 32 + (segment * 2048 + lane)
        for i in tl.static_range(16):
            weights = weights + (tl.load(base + i * 128, mask=live, other=0.0),)
    # The norm's weights do not fit, too. This only brings them near: one number a line.
    line = tl.arange(0, S * C * 16) * 32
    tl.load(NORM + line, mask=line < K, other=0.0, volatile=True)
    # Without it the compiler moves every load down to its use, and nothing is in flight.
    tl.debug_barrier()
    wait(PDL)
    xs = ()
    norms = ()
    for i in tl.static_range(16):
        xs = xs + (tl.load(STREAMS + at + i * 32, mask=live, other=0.0),)
    for i in tl.static_range(16):
        norms = norms + (tl.load(NORM + at + i * 32, mask=live, other=0.0),)
    squares = tl.zeros([S, C, 32], tl.float32)
    for i in tl.static_range(16):
        squares = squares + xs[i] * xs[i]
    parts = tl.reshape(tree(squares, S * C), [S, C])
    mean = add_in_order(tl.zeros([C], tl.float32), parts, C, LEVELS)
    mean = tl.div_rn(mean, tl.full([C], SEGMENTS * 512, tl.float32))
    factor = tl.div_rn(tl.full([C], 1.0, tl.float32), tl.sqrt_rn(mean + eps))
    stream = tl.arange(0, C)
    tl.store(FACTORS + stream, factor, mask=stream < tl.where(tl.program_id(0) == 0, C, 0))
    sums = zeros([S, C, 32], OUTPUTS)
    for i in tl.static_range(16):
        x = (xs[i] * factor[None, :, None]) * norms[i]
        more = ()
        for o in tl.static_range(OUTPUTS):
            more = more + (sums[o] + weights[o * 16 + i].to(tl.float32) * x,)
        sums = more
    each = ()
    for o in tl.static_range(4):
        # A block of three has the last one twice.
        t = tl.reshape(tree(sums[o if o < OUTPUTS else OUTPUTS - 1], S * C), [S, C])
        each = each + (tl.reshape(tl.trans(t), [S * C]),)
    parts = tl.join(tl.join(each[0], each[2]), tl.join(each[1], each[3]))
    parts = tl.reshape(parts, [S * C, 4])
    total = add_in_order(tl.zeros([4], tl.float32), parts, 4, LEVELS + STREAM_LEVELS)
    o = tl.arange(0, 4)
    out = block * OUTPUTS + o
    store(OUT, before + out, total, (o < OUTPUTS) & (out < count), index, COUNT, KINDS, C)


@triton.jit(do_not_specialize=["rows", "stored"])
def up_mean(
    LOW, UP, X, NORM, FACTORS, VALUES, CODES, INFO, rows, stored, D, K, GROUPS: tl.constexpr,
    COUNT: tl.constexpr, ROW_LEVELS: tl.constexpr, NORMED: tl.constexpr, EVEN: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """mean over the COUNT streams of sigmoid(W_up . LOW) * xn as an input of matrices, for a float
    matrix of GROUPS <= 16 groups of inputs. Grid (D / 32, blocks of R = 2**ROW_LEVELS <= rows).

    xn: X if NORMED, else X * FACTORS * NORM. D, K: outputs of a stream and inputs. stored: groups
    of a row in CODES. EVEN: K is a multiple of 32.
    """
    announce(PDL)
    R: tl.constexpr = 1 << ROW_LEVELS
    d = tl.arange(0, 32)[:, None]
    first = tl.program_id(0) * 32
    lane = tl.arange(0, 32)[None, :] + d * 0
    weights = ()
    norms = ()
    for c in tl.static_range(COUNT):
        base = UP + (c * D + first).to(tl.int64) * (GROUPS * 32)
        base = base + (d // 4 * (GROUPS * 128) + d % 4 * 32 + lane)
        for i in tl.static_range(GROUPS):
            weights = weights + (tl.load(base + i * 128),)
        if not NORMED:
            norms = norms + (tl.load(NORM + c * D + first + d),)
    # Without it the compiler moves every load down to its use, and nothing is in flight.
    tl.debug_barrier()
    wait(PDL)
    row = tl.minimum(tl.program_id(1) * R, rows - R)
    L = LOW + row.to(tl.int64) * K + lane
    sums = zeros([32, 32], COUNT * R)
    for i in tl.static_range(GROUPS):
        low = ()
        for r in tl.static_range(R):
            p = L + (r * K + i * 32)
            low = low + (tl.load(p) if EVEN else tl.load(p, mask=i * 32 + lane < K, other=0.0),)
        more = ()
        for c in tl.static_range(COUNT):
            w = weights[c * GROUPS + i].to(tl.float32)
            for r in tl.static_range(R):
                more = more + (sums[c * R + r] + w * low[r],)
        sums = more
    to = row + tl.arange(0, R)[None, :]
    total = tl.zeros([32, R], tl.float32)
    for c in tl.static_range(COUNT):
        x = tl.load(X + (to.to(tl.int64) * COUNT + c) * D + first + d)
        if not NORMED:
            x = (x * tl.load(FACTORS + to * COUNT + c)) * norms[c]
        term = sigmoid(trees(sums[c * R : (c + 1) * R], 32, ROW_LEVELS)) * x
        # No zero stands before the first term, which may be -0.
        total = term if c == 0 else total + term
    mean = tl.div_rn(total, tl.full([32, R], COUNT, tl.float32))
    tl.store(VALUES + to.to(tl.int64) * D + first + d, mean)
    to = row + tl.arange(0, R)
    store_groups(CODES, INFO, tl.trans(mean), to, tl.program_id(0), stored, to < rows, R)


@triton.jit
def mixing(W, LOW, i, left, most, D: tl.constexpr, K: tl.constexpr, L: tl.constexpr,
           COUNT: tl.constexpr, R: tl.constexpr, ALL: tl.constexpr):  # fmt: skip
    """Group i: L numbers of outputs d and d + 16 of every stream, and R rows. left: groups, [T, L];
    most: inputs, [T, 32]; ALL: K is a multiple of 64."""
    w = ()
    for c in tl.static_range(COUNT):
        for half in tl.static_range(2):
            p = W + (i * (4 * L) + (c * D + half * 16) * ((K + 31) // 32) * L)
            w = w + (tl.load(p) if ALL else tl.load(p, mask=i < left, other=0),)
    return w, rows_of(LOW, i, most, K, R, ALL)


@triton.jit(do_not_specialize=["rows", "stored", "blocks"])
def up_mean_many(
    LOW, UP, X, VALUES, CODES, INFO, rows, stored, blocks, D: tl.constexpr, K: tl.constexpr,
    COUNT: tl.constexpr, BLOCKS: tl.constexpr, ROW_LEVELS: tl.constexpr, PACKED: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """As `up_mean` for many normed rows: a program walks `blocks` blocks of BLOCKS * R rows."""
    announce(PDL)
    wait(PDL)
    R: tl.constexpr = 1 << ROW_LEVELS
    T: tl.constexpr = 16 * BLOCKS
    N: tl.constexpr = 2 * COUNT * R
    L: tl.constexpr = 16 if PACKED else 32
    GROUPS: tl.constexpr = (K + 31) // 32
    ALL: tl.constexpr = K % 64 == 0
    t = tl.arange(0, T)
    d = t % 16
    first = tl.program_id(0) * 32
    lane = tl.arange(0, 32)[None, :] + d[:, None] * 0
    most = K - lane
    left = GROUPS + tl.arange(0, L)[None, :] * 0 + d[:, None] * 0
    W = UP + first.to(tl.int64) * (GROUPS * L)
    W = W + ((d // 4 * (4 * GROUPS) + d % 4)[:, None] * L + tl.arange(0, L)[None, :])
    begin = tl.program_id(1) * blocks
    for block in range(begin, tl.minimum(begin + blocks, tl.cdiv(rows, BLOCKS * R))):
        # The last rows may be computed twice: to the same bits.
        row = tl.minimum((block * BLOCKS + t // 16) * R, rows - R)[:, None]
        X_r = LOW + row.to(tl.int64) * K + lane
        evens = zeros([T, 16], N)
        odds = zeros([T, 16], N)
        w, x = mixing(W, X_r, 0, left, most, D, K, L, COUNT, R, ALL)
        for i in range(0, GROUPS, 2):
            # The next group is under way while one is used: not moved behind it.
            next_w, next_x = mixing(W, X_r, i + 1, left, most, D, K, L, COUNT, R, ALL)
            tl.debug_barrier()
            evens, odds = added(evens, odds, w, x, T, 2 * COUNT, R, PACKED)
            at = tl.minimum(i + 2, GROUPS - 1)
            w, x = mixing(W, X_r, at, left, most, D, K, L, COUNT, R, ALL)
            tl.debug_barrier()
            evens, odds = added(evens, odds, next_w, next_x, T, 2 * COUNT, R, PACKED)
        sums = whole(evens, odds, N, T)
        # Columns are halves of rows.
        j = tl.arange(0, 2 * R)[None, :]
        at = first + d[:, None] + j // R * 16
        to = (row + j % R).to(tl.int64)
        total = tl.zeros([T, 2 * R], tl.float32)
        for c in tl.static_range(COUNT):
            mix = sigmoid(trees(sums[c * 2 * R : (c + 1) * 2 * R], T, ROW_LEVELS + 1))
            term = mix * tl.load(X + (to * COUNT + c) * D + at)
            # No zero stands before the first term, which may be -0.
            total = term if c == 0 else total + term
        mean = tl.div_rn(total, tl.full([T, 2 * R], COUNT, tl.float32))
        tl.store(VALUES + to * D + at, mean)
        mean = tl.permute(tl.reshape(mean, [BLOCKS, 16, 2, R]), (0, 3, 2, 1))
        q = tl.arange(0, BLOCKS * R)
        q = tl.minimum((block * BLOCKS + q // R) * R, rows - R) + q % R
        store_groups(
            CODES, INFO, tl.reshape(mean, [BLOCKS * R, 32]), q, tl.program_id(0), stored, q < rows,
            BLOCKS * R,
        )  # fmt: skip


@triton.jit(do_not_specialize=["n", "m"])
def activate(LOW, WEIGHTS, n, m, COUNT: tl.constexpr, B: tl.constexpr, PDL: tl.constexpr):
    """The activations of n numbers of LOW and of m of WEIGHTS, in place. Grid ((n + m) / B,)."""
    announce(PDL)
    wait(PDL)
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    x = tl.load(LOW + at, mask=at < n, other=0.0)
    tl.store(LOW + at, finished(x, 1, COUNT), mask=at < n)
    at = at - n
    live = (at >= 0) & (at < m)
    x = tl.load(WEIGHTS + at, mask=live, other=0.0)
    tl.store(WEIGHTS + at, finished(x, 2, COUNT), mask=live)


@triton.jit(do_not_specialize=["groups"])
def mean(MIX, XN, VALUES, CODES, INFO, groups, D, COUNT: tl.constexpr, PDL: tl.constexpr):
    """The mean over the streams of sigmoid(MIX) * XN as an input. Grid (rows, segments of D)."""
    announce(PDL)
    wait(PDL)
    row = tl.program_id(0)
    group = tl.program_id(1) * 16 + tl.arange(0, 16)
    at = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    live = at < D
    total = tl.zeros([16, 32], tl.float32)
    for c in tl.static_range(COUNT):
        cell = (row.to(tl.int64) * COUNT + c) * D + at
        mix = sigmoid(tl.load(MIX + cell, mask=live, other=0.0))
        term = mix * tl.load(XN + cell, mask=live, other=0.0)
        # No zero stands before the first term, which may be -0.
        total = term if c == 0 else total + term
    total = tl.div_rn(total, tl.full([16, 32], COUNT, tl.float32))
    total = tl.where(live, total, 0.0)
    tl.store(VALUES + row.to(tl.int64) * D + at, total, mask=live)
    store_groups(CODES, INFO, total, row, group, groups, group < groups, 16)


@triton.jit
def write(
    STREAMS, WEIGHTS, Y, D: tl.constexpr, COUNT: tl.constexpr, B: tl.constexpr, PDL: tl.constexpr
):
    """STREAMS[r, c, d] += WEIGHTS[r, c] * Y[r, d]. Grid (D / B, rows)."""
    announce(PDL)
    wait(PDL)
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * B + tl.arange(0, B)
    y = tl.load(Y + row * D + at, mask=at < D, other=0.0)
    for c in tl.static_range(COUNT):
        weight = tl.load(WEIGHTS + row * COUNT + c)
        stream = STREAMS + (row * COUNT + c) * D + at
        x = tl.load(stream, mask=at < D, other=0.0)
        tl.store(stream, x + weight * y, mask=at < D)
