"""Pairs of a row and one of its experts, put together by expert, so that one read of an expert's
weights serves all its rows. Integers only: no order of sums is at stake.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from engine.kernels.dependent import launch_options, wait

# Most pairs that every program counts by itself; more are counted and placed by chunks.
ALONE = 1024
_CHUNK = 512
# Pairs that are placed together (where few programs must be enough, more), and with how many they
# are compared at a time. Chunks whose counts are added at a time.
_TILE = 16
_LONG_TILE = 64
_OTHERS = 128
_CHUNKS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Blocks of `size` pairs of one expert. Pair p belongs to row p // A.

    experts: int32 [most], -1 for a block without pairs. pairs: int32 [most * size], ascending in
    an expert and -1 behind its last one; those of blocks without pairs mean nothing. counts: int32
    [E or more], how many pairs an expert has. Shapes do not depend on what was routed where.
    """

    experts: torch.Tensor
    pairs: torch.Tensor
    counts: torch.Tensor
    size: int


def most_blocks(pairs: int, count: int, size: int) -> int:
    """Blocks that `pairs` pairs of `count` experts can need."""
    return min(pairs, count + pairs // size)


def blocks_of(experts: torch.Tensor, count: int, size: int) -> Blocks:
    """The blocks of pairs int32 [R, A], of `count` experts, in ascending order of experts."""
    pairs, device = experts.numel(), experts.device
    most = most_blocks(pairs, count, size)
    power = triton.next_power_of_2(count)
    chunks = 0 if pairs <= ALONE else -(-pairs // _CHUNK)
    # Of a chunk: how often each expert occurs, then how often it did before. Then of all pairs, and
    # each expert's first block.
    counts = torch.empty((chunks + 2, power), dtype=torch.int32, device=device)
    made = torch.empty(most * (1 + size), dtype=torch.int32, device=device)
    blocks = Blocks(made[:most], made[most:], counts[chunks], size)
    options = {"POWER": power, "num_warps": 4, **launch_options(experts)}
    where = {"SIZE": size, "OTHERS": _OTHERS, **options}
    if chunks:
        count_pairs[(chunks,)](experts, counts, pairs, B=_CHUNK, **options)
        first_blocks[(1,)](counts, blocks.experts, most, chunks, SIZE=size, B=_CHUNKS, **options)
        place_pairs[(chunks,)](
            experts, counts, blocks.experts, blocks.pairs, pairs, chunks, CHUNK=_CHUNK,
            B=_LONG_TILE, **where,
        )  # fmt: skip
    else:
        place_few[(-(-pairs // _TILE),)](
            experts, counts, blocks.experts, blocks.pairs, pairs, most, B=_TILE, **where
        )
    return blocks


@triton.jit
def ranks(EXPERTS, expert, at, first, last, B: tl.constexpr, OTHERS: tl.constexpr):
    """How many of the pairs first..last-1 come before pairs `at` and have their expert: [B]."""
    rank = tl.zeros([B], tl.int32)
    for earlier in range(first, last, OTHERS):
        others = earlier + tl.arange(0, OTHERS)
        other = tl.load(EXPERTS + others, mask=others < last, other=-1)
        same = (other[None, :] == expert[:, None]) & (others[None, :] < at[:, None])
        rank += tl.sum(same.to(tl.int32), axis=1)
    return rank


@triton.jit
def put(BLOCKS, PAIRS, expert, at, rank, start, of_all, live, SIZE: tl.constexpr):
    """Stores pairs `at` of an expert with `of_all` pairs and the first block `start`. The first of
    a block says whose it is, the last one of an expert empties the rest of its block."""
    block = start + rank // SIZE
    tl.store(PAIRS + block * SIZE + rank % SIZE, at, mask=live)
    tl.store(BLOCKS + block, expert, mask=live & (rank % SIZE == 0))
    place = tl.arange(0, SIZE)[None, :]
    rest = (live & (rank == of_all - 1))[:, None] & (place > (rank % SIZE)[:, None])
    none = tl.full(rest.shape, -1, tl.int32)
    tl.store(PAIRS + block[:, None] * SIZE + place, none, mask=rest)


@triton.jit(do_not_specialize=["pairs", "most"], do_not_specialize_on_alignment=["PAIRS"])
def place_few(EXPERTS, COUNTS, BLOCKS, PAIRS, pairs, most, SIZE: tl.constexpr,
              POWER: tl.constexpr, B: tl.constexpr, OTHERS: tl.constexpr,
              PDL: tl.constexpr):  # fmt: skip
    """Every program counts all pairs and places B of them. Grid (pairs / B,)."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    e = tl.arange(0, POWER)
    wait(PDL)
    expert = tl.load(EXPERTS + at, mask=at < pairs, other=0)
    counts = tl.zeros([POWER], tl.int32)
    for first in range(0, pairs, OTHERS):
        others = first + tl.arange(0, OTHERS)
        other = tl.load(EXPERTS + others, mask=others < pairs, other=0)
        counts += tl.histogram(other, POWER, mask=others < pairs)
    last = tl.minimum(tl.program_id(0) * B + B, pairs)
    rank = ranks(EXPERTS, expert, at, 0, last, B, OTHERS)
    blocks = (counts + (SIZE - 1)) // SIZE
    starts = tl.cumsum(blocks, 0) - blocks
    start, of_all = tl.gather(starts, expert, 0), tl.gather(counts, expert, 0)
    put(BLOCKS, PAIRS, expert, at, rank, start, of_all, at < pairs, SIZE)
    tl.store(BLOCKS + at, -1, mask=(at >= tl.sum(blocks, axis=0)) & (at < most))
    if tl.program_id(0) == 0:
        tl.store(COUNTS + e, counts)


@triton.jit(do_not_specialize=["pairs"])
def count_pairs(EXPERTS, COUNTS, pairs, POWER: tl.constexpr, B: tl.constexpr,
                PDL: tl.constexpr):  # fmt: skip
    """COUNTS [chunks, POWER]: how often each expert occurs in B pairs. Grid (chunks,)."""
    wait(PDL)
    chunk = tl.program_id(0)
    at = chunk * B + tl.arange(0, B)
    expert = tl.load(EXPERTS + at, mask=at < pairs, other=0)
    counts = tl.histogram(expert, POWER, mask=at < pairs)
    tl.store(COUNTS + chunk * POWER + tl.arange(0, POWER), counts)


@triton.jit(do_not_specialize=["most", "chunks"])
def first_blocks(COUNTS, BLOCKS, most, chunks, SIZE: tl.constexpr, POWER: tl.constexpr,
                 B: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """The counts of chunks become how often an expert occurs in earlier ones; then COUNTS [chunks +
    2, POWER] gets the counts of all pairs and first blocks. One program."""
    wait(PDL)
    e = tl.arange(0, POWER)
    counts = tl.zeros([POWER], tl.int32)
    for first in range(0, chunks, B):
        chunk = first + tl.arange(0, B)[:, None]
        cell = COUNTS + chunk * POWER + e[None, :]
        here = tl.load(cell, mask=chunk < chunks, other=0)
        tl.store(cell, counts[None, :] + tl.cumsum(here, 0) - here, mask=chunk < chunks)
        counts += tl.sum(here, axis=0)
    blocks = (counts + (SIZE - 1)) // SIZE
    tl.store(COUNTS + chunks * POWER + e, counts)
    tl.store(COUNTS + (chunks + 1) * POWER + e, tl.cumsum(blocks, 0) - blocks)
    for first in range(0, most, POWER):
        at = first + e
        tl.store(BLOCKS + at, -1, mask=(at >= tl.sum(blocks, axis=0)) & (at < most))


@triton.jit(do_not_specialize=["pairs", "chunks"], do_not_specialize_on_alignment=["PAIRS"])
def place_pairs(EXPERTS, COUNTS, BLOCKS, PAIRS, pairs, chunks, SIZE: tl.constexpr,
                POWER: tl.constexpr, CHUNK: tl.constexpr, B: tl.constexpr, OTHERS: tl.constexpr,
                PDL: tl.constexpr):  # fmt: skip
    """Places the pairs of a chunk. Grid (chunks,)."""
    wait(PDL)
    first = tl.program_id(0) * CHUNK
    last = tl.minimum(first + CHUNK, pairs)
    all_counts = COUNTS + chunks * POWER
    for tile in range(first, last, B):
        at = tile + tl.arange(0, B)
        expert = tl.load(EXPERTS + at, mask=at < last, other=0)
        rank = ranks(EXPERTS, expert, at, first, tl.minimum(tile + B, last), B, OTHERS)
        rank += tl.load(COUNTS + tl.program_id(0) * POWER + expert)
        start, of_all = tl.load(all_counts + POWER + expert), tl.load(all_counts + expert)
        put(BLOCKS, PAIRS, expert, at, rank, start, of_all, at < last, SIZE)
