"""Sparse attention's block selector: scores of key blocks, and the best blocks of each row.

Order: a block's key is the sum of its raw keys in turn and one division, then norm and rotation; a
score adds relu(q_h . key) head after head, then one division. Four launches: keys of blocks (which
read the ring as it was before the window), queries and ring, scores, choice. The choice is by
integers: scores are never below +0, so their bits order like they do.
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
# Scores that a program compares at a time.
CHUNK = 1024
PROGRAMS = 1024
# Bytes of scores; more rows take turns.
SCRATCH_BYTES = 256 << 20


@triton.jit(
    do_not_specialize=["length", "blocks"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS"],
)
def block_keys_kernel(
    X, NORM, TABLE, RAW, KEYS, SLOTS, POSITIONS, eps, length, blocks, RATIO: tl.constexpr,
    K: tl.constexpr, HALF: tl.constexpr, LEVELS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The keys of the blocks that the rows complete. Grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    position = tl.load(POSITIONS + row)
    slot = tl.load(SLOTS + row).to(tl.int64)
    if (position + 1) % RATIO == 0:
        at = tl.arange(0, B)
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
        turned = normed_head(key, NORM, TABLE, block * RATIO, eps, K, HALF, LEVELS, B)
        tl.debug_barrier()
        tl.store(key + at, turned, mask=at < K)


@triton.jit(
    do_not_specialize=["rows", "length"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS"],
)
def queries_kernel(
    Q, X, NORM, TABLE, RAW, SLOTS, POSITIONS, QUERIES, eps, rows, length, H: tl.constexpr,
    K: tl.constexpr, HALF: tl.constexpr, LEVELS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Grid (H + 1, rows): a row's queries, then its raw key into the ring."""
    head = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    position = tl.load(POSITIONS + row)
    at = tl.arange(0, B)
    if head < H:
        start = (row * H + head) * K
        query = normed_head(Q + start, NORM, TABLE, position, eps, K, HALF, LEVELS, B)
        tl.store(QUERIES + start + at, query, mask=at < K)
    else:
        slot = tl.load(SLOTS + row).to(tl.int64)
        stays = 1 - is_overwritten(SLOTS, POSITIONS, row, rows, length)
        key = tl.load(X + row * K + at, mask=at < K, other=0.0)
        tl.store(RAW + (slot * length + position % length) * K + at, key, mask=at < K * stays)


@triton.jit(
    do_not_specialize=["blocks", "budget"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS"],
)
def scores_kernel(
    QUERIES, KEYS, SLOTS, POSITIONS, SCORES, blocks, budget, H: tl.constexpr, K: tl.constexpr,
    ROOT: tl.constexpr, RATIO: tl.constexpr, C: tl.constexpr,
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
        tl.store(SCORES + row * blocks + block, score, mask=live)


@triton.jit(
    do_not_specialize=["blocks", "budget"],
    do_not_specialize_on_alignment=["POSITIONS", "OUT"],
)
def choose_kernel(
    SCORES, POSITIONS, OUT, blocks, budget, RATIO: tl.constexpr, B: tl.constexpr
):  # fmt: skip
    """The `budget` largest scores of a row, equal ones lowest block first, ascending; all blocks
    and -1 where there are no more. Grid (rows,). Bit by bit, the largest integer is found that at
    least `budget` scores reach."""
    row = tl.program_id(0).to(tl.int64)
    complete = (tl.load(POSITIONS + row) + 1) // RATIO
    i = tl.arange(0, B)
    out = OUT + row * budget
    if complete <= budget:
        for first in range(0, budget, B):
            block = first + i
            tl.store(out + block, tl.where(block < complete, block, -1), mask=block < budget)
    else:
        scores = SCORES + row * blocks
        least = 0
        for turn in range(31):
            tried = least | (1 << (30 - turn))
            reached = 0
            for first in range(0, complete, B):
                bits = tl.load(scores + first + i, mask=first + i < complete, other=0.0)
                reached += tl.sum((bits.to(tl.int32, bitcast=True) >= tried).to(tl.int32), axis=0)
            least = tl.where(reached >= budget, tried, least)
        above = 0
        for first in range(0, complete, B):
            bits = tl.load(scores + first + i, mask=first + i < complete, other=0.0)
            above += tl.sum((bits.to(tl.int32, bitcast=True) > least).to(tl.int32), axis=0)
        equal = budget - above
        place = 0
        for first in range(0, complete, B):
            live = first + i < complete
            bits = tl.load(scores + first + i, mask=live, other=-1.0).to(tl.int32, bitcast=True)
            more = (bits > least).to(tl.int32)
            same = (bits == least).to(tl.int32)
            rank = tl.cumsum(same, axis=0)
            taken = more + tl.where(rank <= equal, same, 0)
            at = place + tl.cumsum(taken, axis=0) - 1
            tl.store(out + at, first + i, mask=taken > 0)
            place += tl.sum(taken, axis=0)
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
    head = {
        "K": width, "HALF": table.shape[2], "LEVELS": segment_levels(width),
        "B": triton.next_power_of_2(width), "num_warps": 1, "enable_fp_fusion": False,
    }  # fmt: skip
    block_keys_kernel[(count,)](
        k, k_norm, table, raw_keys, block_keys, rows.slots, rows.positions, eps, length, blocks,
        RATIO=ratio, **head,
    )  # fmt: skip
    queries_kernel[(heads + 1, count)](
        q, k, q_norm, table, raw_keys, rows.slots, rows.positions, queries, eps, count, length,
        H=heads, **head,
    )  # fmt: skip
    together = max(1, min(count, SCRATCH_BYTES // (4 * blocks)))
    scores = torch.empty(together, blocks, device=q.device)
    for first in range(0, count, together):
        part = slice(first, min(first + together, count))
        n = part.stop - first
        programs = min(-(-blocks // TILE), max(1, PROGRAMS // n))
        scores_kernel[(programs, n)](
            queries[part], block_keys, rows.slots[part], rows.positions[part], scores,
            blocks, budget, H=heads, K=width, ROOT=width**0.5, RATIO=ratio, C=TILE, num_warps=2,
            enable_fp_fusion=False,
        )  # fmt: skip
        choose_kernel[(n,)](
            scores, rows.positions[part], chosen[part], blocks, budget, RATIO=ratio, B=CHUNK,
            num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
    return chosen
