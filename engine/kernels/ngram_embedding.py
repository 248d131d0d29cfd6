"""Hashed n-gram embeddings (PLE) of block inputs.

For n = 2..size, mixed = tok[p] m0 xor tok[p-1] m1 xor ... (n terms, 64-bit); head h of that n reads
row mixed % sizes[h] + offsets[h]. Tokens at or before the last end-of-text token strictly before p,
and before the start, read as that token. Order of the gate: the dot of `lanes.py`, then the lines
of `engine/reference/ngram_embedding.py`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl

from engine.kernels.dependent import launch_options, wait
from engine.kernels.lanes import add_in_order, tree
from engine.kernels.linear import project
from engine.kernels.matrix import Matrix
from engine.kernels.norms import rms_factor, segment_levels, warps_for
from engine.kernels.rings import is_in_window, is_overwritten
from engine.kernels.scalar import sigmoid
from engine.kernels.table import Table
from engine.models.config import NgramConfig
from engine.rows import Rows

__all__ = ["Table", "ngram_gated_value", "ngram_rows"]

# Values of a stream that a program writes at a time.
BLOCK = 1024


@triton.jit(
    do_not_specialize=["length", "eos"],
    do_not_specialize_on_alignment=["TOKENS", "SLOTS", "POSITIONS"],
)
def hash_kernel(
    TOKENS, RING, SLOTS, POSITIONS, MULTIPLIERS, OFFSETS, SIZES, OUT, length, eos,
    SIZE: tl.constexpr, PER: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Grid (rows,). PER: heads of an n-gram."""
    row = tl.program_id(0).to(tl.int64)
    position = tl.load(POSITIONS + row)
    slot = tl.load(SLOTS + row).to(tl.int64)
    i = tl.arange(0, B)
    one = tl.arange(0, 1)
    token = tl.load(TOKENS + row + one)
    mixed = token.to(tl.uint64) * tl.load(MULTIPLIERS + one).to(tl.uint64)
    ended = one
    for back in tl.static_range(1, SIZE):
        here = is_in_window(SLOTS, POSITIONS, row, back)
        new = tl.load(TOKENS + row - back * here + one)
        old = tl.load(RING + slot * length + tl.maximum(position - back, 0) % length + one)
        previous = tl.where(one + here > 0, new, old)
        ended = tl.where(one + position < back, 1, ended)
        token = tl.where(ended > 0, eos, previous)
        ended = tl.where(token == eos, 1, ended)
        mixed = mixed ^ (token.to(tl.uint64) * tl.load(MULTIPLIERS + back + one).to(tl.uint64))
        head = (back - 1) * PER + i
        size = tl.load(SIZES + head, mask=i < PER, other=1).to(tl.uint64)
        offset = tl.load(OFFSETS + head, mask=i < PER, other=0)
        wide, size = tl.broadcast(mixed, size)
        out = OUT + row * ((SIZE - 1) * PER) + head
        tl.store(out, (wide % size).to(tl.int64) + offset, mask=i < PER)


@triton.jit(
    do_not_specialize=["rows", "length"],
    do_not_specialize_on_alignment=["TOKENS", "SLOTS", "POSITIONS"],
)
def ring_kernel(TOKENS, RING, SLOTS, POSITIONS, rows, length):
    """Grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    stays = 1 - is_overwritten(SLOTS, POSITIONS, row, rows, length)
    place = tl.load(SLOTS + row).to(tl.int64) * length + tl.load(POSITIONS + row) % length
    one = tl.arange(0, 1)
    tl.store(RING + place + one, tl.load(TOKENS + row + one), mask=one < stays)


@triton.jit
def dot_of_scaled(
    A, a_factor, A_WEIGHT, B, b_factor, B_WEIGHT, K: tl.constexpr, LEVELS: tl.constexpr,
    WEIGHED: tl.constexpr,
):  # fmt: skip
    """`dot` of A * a_factor and B * b_factor, each times its weights where WEIGHED: float32 [1]."""
    segment = tl.arange(0, 1 << LEVELS)[:, None] * 512
    lane = tl.arange(0, 32)[None, :]
    lanes = tl.zeros([1 << LEVELS, 32], tl.float32)
    for step in tl.static_range(16 if K >= 512 else (K + 31) // 32):
        at = segment + step * 32 + lane
        a = tl.load(A + at, mask=at < K, other=0.0) * a_factor
        b = tl.load(B + at, mask=at < K, other=0.0) * b_factor
        if WEIGHED:
            a = a * tl.load(A_WEIGHT + at, mask=at < K, other=0.0)
            b = b * tl.load(B_WEIGHT + at, mask=at < K, other=0.0)
        lanes = lanes + a * b
    parts = tl.reshape(tree(lanes, 1 << LEVELS), [1 << LEVELS, 1])
    return add_in_order(tl.zeros([1], tl.float32), parts, 1, LEVELS)


@triton.jit
def number(one):
    """The number in float32 [1]: broadcast as it is, its layout would become that of many."""
    return tl.sum(one, axis=0)


@triton.jit
def gate_kernel(
    KEYS, STREAMS, VALUES, NORM_KEY, NORM_QUERY, NORM_CONV, OUT, NORMED, eps, D: tl.constexpr,
    ROOT: tl.constexpr, LEVELS: tl.constexpr, B: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (streams, rows)."""
    row = tl.program_id(1).to(tl.int64)
    weight = tl.program_id(0) * D
    start = row * tl.num_programs(0) * D + weight
    wait(PDL)
    key_factor = number(rms_factor(KEYS + start, D, LEVELS, eps))
    query_factor = number(rms_factor(STREAMS + start, D, LEVELS, eps))
    s = dot_of_scaled(
        KEYS + start, key_factor, NORM_KEY + weight, STREAMS + start, query_factor,
        NORM_QUERY + weight, D, LEVELS, True,
    )  # fmt: skip
    s = tl.div_rn(s, tl.full([1], ROOT, tl.float32))
    size = tl.abs(s)
    size = tl.sqrt_rn(tl.where(size < 1e-6, 1e-6, size))
    signed = tl.where(s < 0.0, -size, tl.where(s == 0.0, 0.0, size))
    gate = number(sigmoid(signed))
    values = VALUES + row * D
    mean = dot_of_scaled(values, gate, values, values, gate, values, D, LEVELS, False)
    mean = tl.div_rn(mean, tl.full([1], D, tl.float32))
    factor = number(tl.div_rn(tl.full([1], 1.0, tl.float32), tl.sqrt_rn(mean + eps)))
    for first in tl.static_range(0, D, B):
        at = first + tl.arange(0, B)
        value = gate * tl.load(values + at, mask=at < D, other=0.0)
        tl.store(OUT + start + at, value, mask=at < D)
        scale = tl.load(NORM_CONV + weight + at, mask=at < D, other=0.0)
        tl.store(NORMED + start + at, (value * factor) * scale, mask=at < D)


@lru_cache(maxsize=8)
def _constants(
    config: NgramConfig, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Multipliers, offsets and sizes on the device, copied once: a graph must not copy them."""
    arrays = (
        np.array(config.multipliers, np.uint64).view(np.int64),
        np.array(config.offsets, np.int64),
        np.array(config.sizes, np.uint64).view(np.int64),
    )
    multipliers, offsets, sizes = (torch.from_numpy(array).to(device) for array in arrays)
    return multipliers, offsets, sizes


def ngram_rows(
    tokens: torch.Tensor, ring: torch.Tensor, config: NgramConfig, rows: Rows
) -> torch.Tensor:
    """Table rows of every row's n-grams, int64 [R, heads]. Writes the tokens into the ring.

    tokens: int64 [R]; ring: int64 [S, L], tokens by position modulo L.
    """
    count, length = rows.count, ring.shape[1]
    heads = config.heads_per_ngram * (config.size - 1)
    out = torch.empty(count, heads, dtype=torch.int64, device=tokens.device)
    if count:
        hash_kernel[(count,)](
            tokens, ring, rows.slots, rows.positions, *_constants(config, tokens.device), out,
            length, config.eos_token, SIZE=config.size, PER=config.heads_per_ngram,
            B=triton.next_power_of_2(config.heads_per_ngram), num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
        ring_kernel[(count,)](tokens, ring, rows.slots, rows.positions, count, length, num_warps=1)
    return out


def ngram_gated_value(
    embedding: torch.Tensor,
    streams: torch.Tensor,
    key: Matrix,
    value: Matrix,
    norm_key: torch.Tensor,
    norm_query: torch.Tensor,
    norm_conv: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """gate_c * value per stream, float32 [R, C * D], and what the convolution reads: its norm.

    gate_c = sigmoid(sign(s) sqrt(max(|s|, 1e-6))), s = <key_c, query_c> / sqrt(D), where key is the
    normed W_key.e and query the normed streams. embedding: float32 [R, E]; streams [R, C, D].
    """
    count, streams_count, width = streams.shape
    keys, values = (y.contiguous() for y in project(embedding, (key, value)))
    out, normed = (torch.empty_like(keys) for _ in range(2))
    if count:
        gate_kernel[(streams_count, count)](
            keys, streams, values, norm_key, norm_query, norm_conv, out, normed, eps, D=width,
            ROOT=width**0.5, LEVELS=segment_levels(width),
            B=min(BLOCK, triton.next_power_of_2(width)), num_warps=warps_for(width),
            **launch_options(streams),
        )  # fmt: skip
    return out, normed
