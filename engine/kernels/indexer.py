"""Sparse attention's block selector: scores of key blocks, and the best blocks of each row.

Order: a block's key is the sum of its raw keys in turn and one division, then norm and rotation; a
score adds relu(q_h . key) head after head, then one division. Three launches: queries and keys of
blocks (which read the ring as it was before the window), scores, choice (and the ring). The choice
is by integers: scores are never below +0, so their bits order like they do.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels.dots import dots
from engine.kernels.norms import segment_levels
from engine.kernels.rings import is_in_window, is_overwritten
from engine.kernels.rotary import normed_head
from engine.models.config import IndexerConfig
from engine.rows import Rows

# Blocks that a program scores at a time.
TILE = 64
# Most scores that a program compares at a time.
CHUNK = 4096
PROGRAMS = 1024
# Bytes of scores; more rows take turns.
SCRATCH_BYTES = 256 << 20


@triton.jit(
    do_not_specialize=["length", "blocks"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS"],
)
def prepare_kernel(
    Q, X, Q_NORM, K_NORM, TABLE, RAW, KEYS, SLOTS, POSITIONS, QUERIES, eps, length, blocks,
    H: tl.constexpr, RATIO: tl.constexpr, K: tl.constexpr, HALF: tl.constexpr,
    LEVELS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Grid (H + 1, rows): a row's queries, then the key of the block that it completes."""
    head = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    position = tl.load(POSITIONS + row)
    at = tl.arange(0, B)
    if head < H:
        start = (row * H + head) * K
        query = normed_head(Q + start, Q_NORM, TABLE, position, eps, K, HALF, LEVELS, B)
        tl.store(QUERIES + start + at, query, mask=at < K)
    elif (position + 1) % RATIO == 0:
        slot = tl.load(SLOTS + row).to(tl.int64)
        total = tl.zeros([B], tl.float32)
        for back in tl.static_range(RATIO - 1, -1, -1):
            here = is_in_window(SLOTS, POSITIONS, row, back)
            new = tl.load(X + (row - back * here) * K + at, mask=at < K * here, other=0.0)
            old = tl.load(
                RAW + (slot * length + (position - back) % length) * K + at,
                mask=at < K * (1 - here),
                other=0.0,
            )
            total = total + tl.where(at < K * here, new, old)
        block = position // RATIO
        key = KEYS + (slot * blocks + block) * K
        mean = tl.div_rn(total, tl.full([B], RATIO, tl.float32))
        tl.store(key + at, mean, mask=at < K)
        tl.debug_barrier()
        turned = normed_head(key, K_NORM, TABLE, block * RATIO, eps, K, HALF, LEVELS, B)
        tl.debug_barrier()
        tl.store(key + at, turned, mask=at < K)


@triton.jit(
    do_not_specialize=["blocks", "budget"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS"],
)
def scores_kernel(
    QUERIES, KEYS, SLOTS, POSITIONS, SCORES, blocks, budget, stride, H: tl.constexpr,
    K: tl.constexpr, ROOT: tl.constexpr, RATIO: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Scores of the complete blocks of a row that has more of them than `budget`. Grid (programs,
    rows): every program takes tiles in turn."""
    row = tl.program_id(1).to(tl.int64)
    complete = (tl.load(POSITIONS + row) + 1) // RATIO
    start = tl.load(SLOTS + row).to(tl.int64) * blocks
    tiles = tl.where(complete > budget, (complete + C - 1) // C, 0)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        block = tile * C + tl.arange(0, C)
        live = block < complete
        value = dots(
            QUERIES + row * H * K, KEYS, KEYS, start + tl.minimum(block, complete - 1), H, K, False,
            True, H, C,
        )  # fmt: skip
        score = tl.zeros([C], tl.float32)
        for head in tl.static_range(H):
            score = score + tl.where(value[head] > 0.0, value[head], 0.0)
        score = tl.div_rn(score, tl.full([C], ROOT, tl.float32))
        tl.store(SCORES + row * stride + block, score, mask=live)


@triton.jit(
    do_not_specialize=["first", "rows", "length", "budget"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS", "OUT"],
)
def choose_kernel(
    SCORES, X, RAW, SLOTS, POSITIONS, OUT, first, rows, length, budget, stride,
    RATIO: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The `budget` largest scores of a row, equal ones lowest block first, ascending; all blocks
    and -1 where there are no more. Grid (rows from `first` on,). Bit by bit, the largest integer is
    found that at least `budget` scores reach. Also writes the row's raw key into the ring, which no
    program of this launch reads."""
    row = tl.program_id(0).to(tl.int64) + first
    position = tl.load(POSITIONS + row)
    stays = 1 - is_overwritten(SLOTS, POSITIONS, row, rows, length)
    dim = tl.arange(0, BK)
    key = tl.load(X + row * K + dim, mask=dim < K, other=0.0)
    place = tl.load(SLOTS + row).to(tl.int64) * length + position % length
    tl.store(RAW + place * K + dim, key, mask=dim < K * stays)
    complete = (position + 1) // RATIO
    i = tl.arange(0, B)
    out = OUT + row * budget
    if complete <= budget:
        for start in range(0, budget, B):
            block = start + i
            tl.store(out + block, tl.where(block < complete, block, -1), mask=block < budget)
    else:
        scores = SCORES + tl.program_id(0).to(tl.int64) * stride
        least = 0
        bit = 30
        while bit >= 0:
            tried = least | (1 << bit)
            reached = 0
            for start in range(0, complete, B):
                score = tl.load(scores + start + i, mask=start + i < complete, other=0.0)
                reached += tl.sum((score.to(tl.int32, bitcast=True) >= tried).to(tl.int32), axis=0)
            least = tl.where(reached >= budget, tried, least)
            bit = tl.where(reached == budget, -1, bit - 1)
        above = 0
        for start in range(0, complete, B):
            score = tl.load(scores + start + i, mask=start + i < complete, other=0.0)
            above += tl.sum((score.to(tl.int32, bitcast=True) > least).to(tl.int32), axis=0)
        equal = budget - above
        taken_before = 0
        for start in range(0, complete, B):
            score = tl.load(scores + start + i, mask=start + i < complete, other=-1.0)
            bits = score.to(tl.int32, bitcast=True)
            same = (bits == least).to(tl.int32)
            taken = tl.where(tl.cumsum(same, axis=0) <= equal, same, 0)
            taken = tl.where(bits > least, 1, taken)
            at = taken_before + tl.cumsum(taken, axis=0) - 1
            tl.store(out + at, start + i, mask=taken > 0)
            taken_before += tl.sum(taken, axis=0)
            equal -= tl.sum(same, axis=0)


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
    count, blocks, length = rows.count, block_keys.shape[1], raw_keys.shape[1]
    heads, width = config.heads, config.key_length
    budget = min(config.top_k // ratio, blocks)
    chosen = torch.empty(count, budget, dtype=torch.int32, device=q.device)
    if not count:
        return chosen
    queries = torch.empty(count, heads, width, device=q.device)
    padded = triton.next_power_of_2(width)
    where = (rows.slots, rows.positions)
    prepare_kernel[(heads + 1, count)](
        q, k, q_norm, k_norm, table, raw_keys, block_keys, *where, queries, eps, length, blocks,
        H=heads, RATIO=ratio, K=width, HALF=table.shape[2], LEVELS=segment_levels(width), B=padded,
        num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
    # Whole tiles of 16 scores a row: loads of several at once.
    stride = -(-blocks // 16) * 16
    together = max(1, min(count, SCRATCH_BYTES // (4 * stride)))
    scores = torch.empty(together, stride, device=q.device)
    chunk = min(CHUNK, triton.next_power_of_2(stride))
    for first in range(0, count, together):
        part = slice(first, min(first + together, count))
        n = part.stop - first
        programs = min(-(-blocks // TILE), max(1, PROGRAMS // n))
        scores_kernel[(programs, n)](
            queries[part], block_keys, rows.slots[part], rows.positions[part], scores, blocks,
            budget, stride, H=heads, K=width, ROOT=width**0.5, RATIO=ratio, C=TILE, num_warps=2,
            enable_fp_fusion=False,
        )  # fmt: skip
        choose_kernel[(n,)](
            scores, k, raw_keys, *where, chosen, first, count, length, budget, stride,
            RATIO=ratio, K=width, BK=padded, B=chunk, num_warps=8, enable_fp_fusion=False,
        )  # fmt: skip
    return chosen
