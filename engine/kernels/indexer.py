"""Sparse attention's block selector: scores of key blocks, and the best blocks of each row.

Order: a block's key is the sum of its raw keys in turn and one division, then norm and rotation; a
score adds relu(q_h . key) head after head, then one division. Three launches: queries and keys of
blocks (which read the ring as it was before the window), scores, choice (and the ring). The choice
is by integers: scores are never below +0, so their bits order like they do.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels.choice import choose_best
from engine.kernels.dependent import launch_options, wait
from engine.kernels.dots import finished, lanes_at, products, shuffles, zeros
from engine.kernels.rings import is_in_window, is_overwritten
from engine.kernels.rotary import head_constants, normed
from engine.models.config import IndexerConfig
from engine.rows import Rows

# Vectors of a tile of `dots.py` with one warp, and tiles of keys of a program of `scores`.
TILE, TILES = 4, 4
# Rows of one slot that a program scores for the keys that it has read, in windows of many rows.
TOGETHER = 32
# Most scores that a program compares at a time where there is no PTX.
CHUNK = 16384
# Where there is: warps of a program, and blocks that it lists at a time where all are taken.
PTX_WARPS, PTX_BLOCKS = 16, 512
PROGRAMS = 2048
# Bytes of scores; more rows take turns.
SCRATCH_BYTES = 256 << 20


@triton.jit
def prepare_index(
    part, row, Q, X, Q_NORM, K_NORM, TABLE, RAW, KEYS, SLOTS, POSITIONS, QUERIES, eps, length,
    blocks, H: tl.constexpr, RATIO: tl.constexpr, K: tl.constexpr, HALF: tl.constexpr,
    M: tl.constexpr, SHUFFLE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """M of a row's queries, or the key of the block that it completes."""
    position = tl.load(POSITIONS + row)
    lane = tl.arange(0, 32)[None, :] + tl.arange(0, M)[:, None] * 0
    if part < (H + M - 1) // M:
        head = part * M + tl.arange(0, M)[:, None]
        constants = head_constants(Q_NORM, TABLE, position, K, HALF, M)
        wait(PDL)
        at = (row * H + head) * K
        x = lanes_at(Q + at, head < H, K, M)
        x = normed(x, Q + at, constants, eps, K, HALF, M, SHUFFLE)
        for step in tl.static_range((K + 31) // 32):
            inside = (head < H) & (step * 32 + lane < K)
            tl.store(QUERIES + at + step * 32 + lane, x[step], mask=inside)
    else:
        only = tl.arange(0, M)[:, None] == 0
        block = position // RATIO
        constants = head_constants(K_NORM, TABLE, block * RATIO, K, HALF, M)
        slot = tl.load(SLOTS + row).to(tl.int64)
        found = ()
        for back in tl.static_range(RATIO):
            found = found + (is_in_window(SLOTS, POSITIONS, row, back),)
        wait(PDL)
        if (position + 1) % RATIO == 0:
            total = zeros((K + 31) // 32, M, 32)
            for back in tl.static_range(RATIO - 1, -1, -1):
                here = found[back]
                new = X + (row - back * here) * K
                old = RAW + (slot * length + (position - back) % length) * K
                after = ()
                for step in tl.static_range((K + 31) // 32):
                    at = step * 32 + lane
                    width = tl.where(only, K, 0)
                    a = tl.load(new + at, mask=at < width * here, other=0.0)
                    b = tl.load(old + at, mask=at < width * (1 - here), other=0.0)
                    after = after + (total[step] + tl.where(at < K * here, a, b),)
                total = after
            key = KEYS + (slot * blocks + block) * K
            mean = ()
            for step in tl.static_range((K + 31) // 32):
                at = step * 32 + lane
                if RATIO & (RATIO - 1) == 0:
                    value = total[step] * (1.0 / RATIO)  # exact, as the quotient
                else:
                    value = tl.div_rn(total[step], tl.full([M, 32], RATIO, tl.float32))
                mean = mean + (value,)
                if HALF % 32 != 0:
                    tl.store(key + at, value, mask=only & (at < K))
            tl.debug_barrier()
            turned = normed(
                mean, key + tl.zeros([M, 1], tl.int32), constants, eps, K, HALF, M, SHUFFLE
            )
            tl.debug_barrier()
            for step in tl.static_range((K + 31) // 32):
                at = step * 32 + lane
                tl.store(key + at, turned[step], mask=only & (at < K))


@triton.jit(
    do_not_specialize=["length", "blocks"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS"],
)
def prepare_kernel(
    Q, X, Q_NORM, K_NORM, TABLE, RAW, KEYS, SLOTS, POSITIONS, QUERIES, eps, length, blocks,
    H: tl.constexpr, RATIO: tl.constexpr, K: tl.constexpr, HALF: tl.constexpr, M: tl.constexpr,
    SHUFFLE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (H / M + 1, rows)."""
    prepare_index(
        tl.program_id(0), tl.program_id(1).to(tl.int64), Q, X, Q_NORM, K_NORM, TABLE, RAW, KEYS,
        SLOTS, POSITIONS, QUERIES, eps, length, blocks, H, RATIO, K, HALF, M, SHUFFLE, PDL,
    )  # fmt: skip


@triton.jit(
    do_not_specialize=["rows", "together", "blocks", "budget", "stride"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS"],
)
def scores_kernel(
    QUERIES, KEYS, SLOTS, POSITIONS, SCORES, rows, together, blocks, budget, stride,
    H: tl.constexpr, K: tl.constexpr, ROOT: tl.constexpr, RATIO: tl.constexpr, M: tl.constexpr,
    N: tl.constexpr, SHUFFLE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Scores of the complete blocks of rows that have more of them than `budget`. Grid (programs,
    rows / together): a program takes N tiles of M blocks in turn, for all of its rows that follow
    each other in one slot."""
    STEPS: tl.constexpr = (K + 31) // 32
    first = tl.program_id(1) * together
    last = tl.minimum(first + together, rows)
    column = tl.arange(0, 8)[None, :]
    wait(PDL)
    row = first
    while row < last:
        slot = tl.load(SLOTS + row)
        most = 0
        end = row
        while (end < last) & (tl.load(SLOTS + tl.minimum(end, last - 1)) == slot):
            most = tl.maximum(most, (tl.load(POSITIONS + end) + 1) // RATIO)
            end += 1
        tiles = tl.where(most > budget, (most + M * N - 1) // (M * N), 0)
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            keys = ()
            for n in tl.static_range(N):
                read = tl.minimum((tile * N + n) * M + tl.arange(0, M)[:, None], most - 1)
                key_at = KEYS + (slot.to(tl.int64) * blocks + read) * K
                keys = keys + lanes_at(key_at, None, K, M)
            for r in range(row, end):
                complete = (tl.load(POSITIONS + r) + 1) // RATIO
                if complete > budget:
                    query = QUERIES + (r + tl.zeros([M, 1], tl.int64)) * (H * K)
                    found = zeros(N, M, 8)
                    for head in tl.static_range(H):
                        q = lanes_at(query + head * K, None, K, M)
                        after = ()
                        for n in tl.static_range(N):
                            parts = products(q, keys, n * STEPS, K, M, SHUFFLE)
                            value = finished(parts, 0, K, M, SHUFFLE)
                            after = after + (found[n] + tl.where(value > 0.0, value, 0.0),)
                        found = after
                    score = found[0]
                    for n in tl.static_range(1, N):
                        score = tl.where(column == n, found[n], score)
                    score = tl.div_rn(score, tl.full([M, 8], ROOT, tl.float32))
                    block = (tile * N + column) * M + tl.arange(0, M)[:, None]
                    at = SCORES + (r + tl.zeros([M, 1], tl.int64)) * stride + block
                    # -1 behind the last one: who chooses reads whole tiles.
                    tl.store(at, tl.where(block < complete, score, -1.0), mask=column < N)
        row = end


@triton.jit
def least_chosen(SCORES, bits, complete, budget, ALL: tl.constexpr, B: tl.constexpr):
    """The largest integer that at least `budget` of the scores reach, found bit by bit; or a
    smaller one that as many reach. bits: the scores if B are ALL of them."""
    i = tl.arange(0, B)
    least = 0
    bit = 30
    while bit >= 0:
        tried = least | (1 << bit)
        if ALL:
            reached = tl.sum((bits >= tried).to(tl.int32), axis=0)
        else:
            reached = 0
            for start in range(0, complete, B):
                score = tl.load(SCORES + start + i, mask=start + i < complete, other=0.0)
                reached += tl.sum((score.to(tl.int32, bitcast=True) >= tried).to(tl.int32), axis=0)
        least = tl.where(reached >= budget, tried, least)
        bit = tl.where(reached == budget, -1, bit - 1)
    return least


@triton.jit(
    do_not_specialize=["first", "rows", "length", "budget", "stride"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS", "OUT"],
)
def choose_kernel(
    SCORES, X, RAW, SLOTS, POSITIONS, OUT, first, rows, length, budget, stride,
    RATIO: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, ALL: tl.constexpr, B: tl.constexpr,
    PTX: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The `budget` largest scores of a row, equal ones lowest block first, ascending; all blocks
    and -1 where there are no more. Grid (rows from `first` on,). Also writes the row's raw key into
    the ring, which no program of this launch reads. ALL: a row has at most B blocks; without PTX
    only."""
    row = tl.program_id(0).to(tl.int64) + first
    position = tl.load(POSITIONS + row)
    stays = 1 - is_overwritten(SLOTS, POSITIONS, row, rows, length)
    place = tl.load(SLOTS + row).to(tl.int64) * length + position % length
    complete = (position + 1) // RATIO
    i = tl.arange(0, B)
    out = OUT + row * budget
    wait(PDL)
    dim = tl.arange(0, BK)
    key = tl.load(X + row * K + dim, mask=dim < K, other=0.0)
    tl.store(RAW + place * K + dim, key, mask=dim < K * stays)
    if complete <= budget:
        for start in range(0, budget, B):
            block = start + i
            tl.store(out + block, tl.where(block < complete, block, -1), mask=block < budget)
    elif PTX:
        choose_best(SCORES + tl.program_id(0).to(tl.int64) * stride, out, complete, budget)
    else:
        scores = SCORES + tl.program_id(0).to(tl.int64) * stride
        # Where B are all, no number of scores that are not there may reach anything.
        score = tl.load(scores + i, mask=i < complete, other=-1.0)
        bits = score.to(tl.int32, bitcast=True)
        least = least_chosen(scores, bits, complete, budget, ALL, B)
        if ALL:
            above = tl.sum((bits > least).to(tl.int32), axis=0)
        else:
            above = 0
            for start in range(0, complete, B):
                score = tl.load(scores + start + i, mask=start + i < complete, other=-1.0)
                above += tl.sum((score.to(tl.int32, bitcast=True) > least).to(tl.int32), axis=0)
        # Two counts in one number: of scores above, and of those equal to the least.
        equal = budget - above
        above_before = 0
        same_before = 0
        for start in range(0, complete, B):
            if not ALL:
                score = tl.load(scores + start + i, mask=start + i < complete, other=-1.0)
                bits = score.to(tl.int32, bitcast=True)
            here = (bits > least).to(tl.int32) + (bits == least).to(tl.int32) * 65536
            until = tl.cumsum(here, axis=0)
            before = until - here
            over = above_before + (before & 0xFFFF)
            same = same_before + (before >> 16)
            taken = (bits > least) | ((bits == least) & (same < equal))
            tl.store(out + over + tl.minimum(same, equal), start + i, mask=taken)
            count = tl.sum(here, axis=0)
            above_before += count & 0xFFFF
            same_before += count >> 16


def select_blocks(
    q: torch.Tensor,
    k: torch.Tensor,
    q_norm: torch.Tensor,
    k_norm: torch.Tensor,
    table: torch.Tensor,
    raw_keys: torch.Tensor,
    block_keys: torch.Tensor,
    ratio: int,
    config: IndexerConfig,
    eps: float,
    rows: Rows,
) -> torch.Tensor:
    """Writes the rows' keys, then chooses: int32 [R, B], ascending, padded with -1.

    q: float32 [R, H * K]; k: float32 [R, K]; raw_keys: float32 [S, L, K], a ring by position;
    block_keys: float32 [S, context // ratio + 1, K]. B is top_k // ratio, or all
    blocks there are. Equal scores: the lowest block first.
    """
    queries = torch.empty(rows.count, config.heads, config.key_length, device=q.device)
    if rows.count:
        prepare_kernel[(parts_of(config), rows.count)](
            q, k, q_norm, k_norm, table, raw_keys, block_keys, rows.slots, rows.positions, queries,
            eps, raw_keys.shape[1], block_keys.shape[1], H=config.heads, RATIO=ratio,
            K=config.key_length, HALF=table.shape[2], M=TILE, SHUFFLE=shuffles(q), num_warps=1,
            **launch_options(q),
        )  # fmt: skip
    return choose(k, queries, raw_keys, block_keys, ratio, config, rows)


def parts_of(config: IndexerConfig) -> int:
    """Programs of `prepare` for a row."""
    return -(-config.heads // TILE) + 1


def choose(
    k: torch.Tensor,
    queries: torch.Tensor,
    raw_keys: torch.Tensor,
    block_keys: torch.Tensor,
    ratio: int,
    config: IndexerConfig,
    rows: Rows,
) -> torch.Tensor:
    """`select_blocks` from the normed and rotated queries on, float32 [R, H, K]."""
    count, blocks, length = rows.count, block_keys.shape[1], raw_keys.shape[1]
    most = max(blocks - 1, 1)  # complete ones
    heads, width = config.heads, config.key_length
    budget = min(config.top_k // ratio, blocks)
    chosen = torch.empty(count, budget, dtype=torch.int32, device=k.device)
    if not count:
        return chosen
    options = launch_options(k)
    where = (rows.slots, rows.positions)
    # Whole tiles of 16 scores a row: loads of several at once.
    stride = -(-most // 16) * 16
    turn = max(1, min(count, SCRATCH_BYTES // (4 * stride)))
    scores = torch.empty(turn, stride, device=k.device)
    ptx = shuffles(k)
    chunk = min(PTX_BLOCKS if ptx else CHUNK, triton.next_power_of_2(stride))
    warps = PTX_WARPS if ptx else max(1, min(32, chunk // 512))
    tiles = -(-most // (TILE * TILES))
    for first in range(0, count, turn):
        part = slice(first, min(first + turn, count))
        n = part.stop - first
        together = max(1, min(TOGETHER, n * tiles // PROGRAMS))
        programs = min(tiles, max(1, PROGRAMS * together // n))
        scores_kernel[(programs, -(-n // together))](
            queries[part], block_keys, rows.slots[part], rows.positions[part], scores, n, together,
            blocks, budget, stride, H=heads, K=width, ROOT=width**0.5, RATIO=ratio, M=TILE, N=TILES,
            SHUFFLE=shuffles(k), num_warps=1, **options,
        )  # fmt: skip
        choose_kernel[(n,)](
            scores, k, raw_keys, *where, chosen, first, count, length, budget, stride,
            RATIO=ratio, K=width, BK=triton.next_power_of_2(width), ALL=ptx or most <= chunk,
            B=chunk, PTX=ptx, num_warps=warps, **options,
        )  # fmt: skip
    return chosen
