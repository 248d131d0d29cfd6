"""Products of float rows and float matrices: dot32, as `engine/reference/lanes.py` orders it.

In a segment of 512 inputs lane l adds the products of inputs l, l + 32, ... in turn, from 0; the
lanes are added as a tree of adjacent pairs, the segments in ascending order. Everywhere a thread
has four lanes, for several outputs and rows: that makes the most of what it loads.

Few rows: a program has every segment of a tile of four outputs, all its weights in flight at once.
Many rows: a program has a tile of rows and outputs, and walks the segments, or has one of them.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# What is constant and what is not stand in conditions of their own.
# ruff: noqa: SIM102
# mypy: disable-error-code="assignment,misc,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import lanes
from engine.kernels.dependent import wait


@triton.jit
def zeros(shape, COUNT: tl.constexpr):
    """COUNT float32 tensors."""
    made = ()
    for _i in tl.static_range(COUNT):
        made = made + (tl.zeros(shape, tl.float32),)
    return made


@triton.jit
def chosen(program, A, B, C, D, a, b, c, d, PER: tl.constexpr, COUNT: tl.constexpr):
    """Which of COUNT matrices (records A to D, outputs a to d) a program serves, when each has
    programs for PER outputs: its record, outputs, outputs before it, program within it."""
    record = A
    n = a
    before = 0
    start = 0
    if COUNT > 1:
        if program >= tl.cdiv(a, PER):
            record = B
            n = b
            before = a
            start = tl.cdiv(a, PER)
    if COUNT > 2:
        if program >= tl.cdiv(a, PER) + tl.cdiv(b, PER):
            record = C
            n = c
            before = a + b
            start = tl.cdiv(a, PER) + tl.cdiv(b, PER)
    if COUNT > 3:
        if program >= tl.cdiv(a, PER) + tl.cdiv(b, PER) + tl.cdiv(c, PER):
            record = D
            n = d
            before = a + b + c
            start = tl.cdiv(a, PER) + tl.cdiv(b, PER) + tl.cdiv(c, PER)
    return record, n, before, program - start


@triton.jit(do_not_specialize=["a", "b", "c", "d", "rows", "groups"])
def few(X, A, B, C, D, EXPERTS, OUT, a, b, c, d, rows, K, groups, USED: tl.constexpr,
        COUNT: tl.constexpr, TILES: tl.constexpr, BLOCKS: tl.constexpr, LEVELS: tl.constexpr,
        ROW_LEVELS: tl.constexpr, SPLIT: tl.constexpr,
        EVEN: tl.constexpr, UNROLLED: tl.constexpr, TYPE: tl.constexpr,
        PDL: tl.constexpr):  # fmt: skip
    """BLOCKS * R rows, R = 2**ROW_LEVELS <= rows, times TILES tiles of four outputs.

    Grid (blocks of TILES tiles, one matrix after the other; row blocks). A program has all the
    segments, at most 2**LEVELS; with SPLIT the third axis of the grid is segments (LEVELS is 0),
    and OUT has one such part for each, for `add_parts`. EVEN: K is a multiple of 32. OUT has
    [rows, outputs] of each matrix in turn. With USED, A holds the addresses of a stack, and row p
    of OUT is matrix EXPERTS[p] times row p // USED; then a program has one row. UNROLLED: groups of
    the longest segment. TYPE: of weights.
    """
    R: tl.constexpr = 1 << ROW_LEVELS
    P: tl.constexpr = TILES * BLOCKS
    T: tl.constexpr = P << LEVELS
    M: tl.constexpr = 4 * R
    record, n, before, block = chosen(tl.program_id(0), A, B, C, D, a, b, c, d, 4 * TILES, COUNT)
    # Axes: segments of row blocks of tiles, lanes.
    t = tl.arange(0, T)[:, None]
    lane = tl.arange(0, 32)[None, :]
    segment = t // P
    if SPLIT:
        segment += tl.program_id(2)
        OUT += tl.program_id(2).to(tl.int64) * rows * (a + b + c + d)
    tile = tl.minimum(block * TILES + t % TILES, (n + 3) // 4 - 1)
    # The last rows may be computed twice: to the same bits.
    row = tl.minimum((tl.program_id(1) * BLOCKS + t // TILES % BLOCKS) * R, rows - R)
    if USED:
        wait(PDL)
        at = tl.load(A + tl.load(EXPERTS + tl.program_id(1))).to(tl.pointer_type(TYPE))
        record = tl.multiple_of(at, 16)
        row = row // USED
    W = record + tile.to(tl.int64) * (groups * 128) + (segment * 2048 + lane)
    left = groups - segment * 16 + lane * 0
    weights = ()
    for o in tl.static_range(4):
        for i in tl.static_range(UNROLLED):
            weights = weights + (tl.load(W + (i * 128 + o * 32), mask=i < left, other=0.0),)
    # Without it the compiler moves every load down to its use, and nothing is in flight.
    tl.debug_barrier()
    if not USED:
        wait(PDL)
    X += row.to(tl.int64) * K + (segment * 512 + lane)
    most = K - segment * 512 - lane
    sums = zeros([T, 32], M)
    for i in tl.static_range(UNROLLED):
        x = ()
        for r in tl.static_range(R):
            ok = i < left if EVEN else i * 32 < most
            x = x + (tl.load(X + (r * K + i * 32), mask=ok, other=0.0),)
        more = ()
        for o in tl.static_range(4):
            w = weights[o * UNROLLED + i].to(tl.float32)
            for r in tl.static_range(R):
                more = more + (sums[o * R + r] + w * x[r],)
        sums = more
    total = lanes.trees(sums, T, ROW_LEVELS + 2)
    if LEVELS > 0:
        parts = tl.reshape(total, [1 << LEVELS, P * M])
        total = lanes.add_in_order(tl.zeros([P * M], tl.float32), parts, P * M, LEVELS)
    total = tl.reshape(total, [P, M])
    p = tl.arange(0, P)[:, None]
    j = tl.arange(0, M)[None, :]
    out = (block * TILES + p % TILES) * 4 + j // R
    to = tl.minimum((tl.program_id(1) * BLOCKS + p // TILES) * R, rows - R) + j % R
    at = rows.to(tl.int64) * before + to.to(tl.int64) * n + out
    tl.store(OUT + at, total, mask=out < n)


@triton.jit
def halves(x, T: tl.constexpr, PACKED: tl.constexpr):
    """Numbers of 32 lanes as float32: [T, 16] of the even lanes and of the odd ones.

    x: [T, 32]; or PACKED: int32 [T, 16], each of two bfloat16.
    """
    if PACKED:
        even = (x << 16).to(tl.float32, bitcast=True)
        odd = (x & -65536).to(tl.float32, bitcast=True)
    else:
        even, odd = tl.split(tl.reshape(x.to(tl.float32), [T, 16, 2]))
    return even, odd


@triton.jit
def rows_of(X, i, most, K: tl.constexpr, R: tl.constexpr, ALL: tl.constexpr):
    """Group i of R rows, each [T, 32]. ALL: K is a multiple of 64; most: inputs left, [T, 32]."""
    x = ()
    for r in tl.static_range(R):
        p = X + (r * K + i * 32)
        x = x + (tl.load(p) if ALL else tl.load(p, mask=i * 32 < most, other=0.0),)
    return x


@triton.jit
def loaded(W, X, i, left, left_second, most, K: tl.constexpr, NEXT: tl.constexpr, L: tl.constexpr,
           R: tl.constexpr, ALL: tl.constexpr):  # fmt: skip
    """Group i of a segment: L numbers of each output of two tiles, and R rows.

    left, left_second: groups of the segment for either tile, [T, L].
    """
    w = ()
    for o in tl.static_range(4):
        p = W + (i * (4 * L) + o * L)
        w = w + (tl.load(p) if ALL else tl.load(p, mask=i < left, other=0),)
    for o in tl.static_range(4):
        p = W + (NEXT + i * (4 * L) + o * L)
        w = w + (tl.load(p, mask=i < left_second, other=0),)
    return w, rows_of(X, i, most, K, R, ALL)


@triton.jit
def added(evens, odds, w, x, T: tl.constexpr, N: tl.constexpr, R: tl.constexpr,
          PACKED: tl.constexpr):  # fmt: skip
    """Sums of even and odd lanes, N * R tensors each, and the products of N outputs and R rows."""
    x_evens = ()
    x_odds = ()
    for r in tl.static_range(R):
        even, odd = halves(x[r], T, False)
        x_evens = x_evens + (even,)
        x_odds = x_odds + (odd,)
    more_evens = ()
    more_odds = ()
    for o in tl.static_range(N):
        even, odd = halves(w[o], T, PACKED)
        for r in tl.static_range(R):
            more_evens = more_evens + (evens[o * R + r] + even * x_evens[r],)
            more_odds = more_odds + (odds[o * R + r] + odd * x_odds[r],)
    return more_evens, more_odds


@triton.jit
def whole(evens, odds, COUNT: tl.constexpr, T: tl.constexpr):
    """COUNT tensors [T, 32] of their even and odd columns."""
    made = ()
    for j in tl.static_range(COUNT):
        made = made + (tl.reshape(tl.join(evens[j], odds[j]), [T, 32]),)
    return made


@triton.jit(do_not_specialize=["a", "b", "c", "d", "rows"])
def many(X, A, B, C, D, OUT, a, b, c, d, rows, K: tl.constexpr, COUNT: tl.constexpr,
         PAIRS: tl.constexpr, BLOCKS: tl.constexpr,
         ROW_LEVELS: tl.constexpr, SPLIT: tl.constexpr, PACKED: tl.constexpr,
         PDL: tl.constexpr):  # fmt: skip
    """As `few`, of BLOCKS * R rows and PAIRS pairs of tiles; a program walks the segments."""
    wait(PDL)
    R: tl.constexpr = 1 << ROW_LEVELS
    T: tl.constexpr = PAIRS * BLOCKS
    N: tl.constexpr = 8 * R
    L: tl.constexpr = 16 if PACKED else 32
    GROUPS: tl.constexpr = (K + 31) // 32
    NEXT: tl.constexpr = GROUPS * 4 * L
    ALL: tl.constexpr = K % 64 == 0
    record, n, before, block = chosen(tl.program_id(0), A, B, C, D, a, b, c, d, 8 * PAIRS, COUNT)
    t = tl.arange(0, T)
    lane = tl.arange(0, 32)[None, :] + t[:, None] * 0
    # The last outputs and rows may be computed twice: to the same bits.
    tiles = (n + 3) // 4
    tile = tl.minimum((block * PAIRS + t % PAIRS) * 2, tl.maximum(tiles - 2, 0))
    row = tl.minimum((tl.program_id(1) * BLOCKS + t // PAIRS) * R, rows - R)
    W = record + tile.to(tl.int64)[:, None] * NEXT + (tl.arange(0, L)[None, :] + t[:, None] * 0)
    X += row.to(tl.int64)[:, None] * K + lane
    begin = 0
    end = (GROUPS + 15) // 16
    if SPLIT:
        begin = tl.program_id(2)
        end = begin + 1
        OUT += begin.to(tl.int64) * rows * (a + b + c + d)
    total = tl.zeros([T, N], tl.float32)
    for s in range(begin, end):
        W_s = W + s * (64 * L)
        X_s = X + s * 512
        most = K - s * 512 - lane
        count = tl.minimum(GROUPS - s * 16, 16)
        evens = zeros([T, 16], N)
        odds = zeros([T, 16], N)
        left = count + tl.arange(0, L)[None, :] * 0 + t[:, None] * 0
        second = tl.where(tiles > 1, left, 0)
        w, x = loaded(W_s, X_s, 0, left, second, most, K, NEXT, L, R, ALL)
        for i in range(0, count, 2):
            # The next group is under way while one is used: not moved behind it.
            next_w, next_x = loaded(W_s, X_s, i + 1, left, second, most, K, NEXT, L, R, ALL)
            tl.debug_barrier()
            evens, odds = added(evens, odds, w, x, T, 8, R, PACKED)
            at = tl.minimum(i + 2, count - 1)
            w, x = loaded(W_s, X_s, at, left, second, most, K, NEXT, L, R, ALL)
            tl.debug_barrier()
            evens, odds = added(evens, odds, next_w, next_x, T, 8, R, PACKED)
        total = total + lanes.trees(whole(evens, odds, N, T), T, ROW_LEVELS + 3)
    j = tl.arange(0, N)[None, :]
    out = tile[:, None] * 4 + j // R
    to = row[:, None] + j % R
    at = rows.to(tl.int64) * before + to.to(tl.int64) * n + out
    tl.store(OUT + at, total, mask=out < n)


@triton.jit(do_not_specialize=["count", "segments"])
def add_parts(PARTS, OUT, count, segments, B: tl.constexpr, PDL: tl.constexpr):
    """`count` numbers of OUT from their parts. Grid (blocks of B numbers)."""
    wait(PDL)
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    live = at < count
    total = tl.zeros([B], tl.float32)
    for s in range(segments):
        total = total + tl.load(PARTS + s * count.to(tl.int64) + at, mask=live, other=0.0)
    tl.store(OUT + at, total, mask=live)
