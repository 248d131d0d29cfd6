"""The mixer of gated delta nets for a window of one row: one launch, a program has one head.

The row's channels of a head are four lines of a tile, each in a warp: queries, keys, values, and
the gate. What the walk reads goes through memory, since it needs queries and keys in all threads,
and so do its outputs on their way back to a line.
"""

# Tuples grow in loops that Triton unrolls.
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.convolution import weights_of
from engine.kernels.delta_rows import finish, store_gates, to_length
from engine.kernels.delta_walk import (
    columns,
    faded,
    keys_at,
    learnt,
    load_state,
    store_state,
    tile_products,
    tile_sums,
)
from engine.kernels.dependent import wait
from engine.kernels.scalar import exp
from engine.kernels.spans import line_of


@triton.jit(
    do_not_specialize=["length", "groups"],
    do_not_specialize_on_alignment=["ALPHA", "BETA", "SPANS"],
)
def mix_row(
    QKV, GATE, ALPHA, BETA, CONV, RING, DECAY, BIAS, length, SPANS, STATE, NORM, ROWS, GATES, OUT,
    CODES, INFO, groups, eps,
    SCALE: tl.constexpr, KH: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, LEVELS: tl.constexpr, TAPS: tl.constexpr, SILU: tl.constexpr,
    QUANTISE: tl.constexpr, L: tl.constexpr, M: tl.constexpr, TILES: tl.constexpr,
    KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr, GROUPS: tl.constexpr,
    SHUFFLE: tl.constexpr, EXCHANGE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (heads,). L: lines of a tile, at least 4, as many as warps; TILES * M: at least V.

    State and ring are read before the wait: the kernel before must not be one that changes them.
    Heads of one key head convolve its channels each for itself and write the same; the first of
    them writes the ring, on a cell that no tap reads.
    """
    CHANNELS: tl.constexpr = 2 * KH * K + H * V
    head = tl.program_id(0)
    key_head = head % KH
    slot, _, count, start, certain = line_of(SPANS, 0)
    base = STATE + (slot * H + head) * (K * V)
    # Tiles of values lie side by side, so that outputs are stored as they come.
    value = tl.arange(0, M)[:, None] * TILES
    state = ()
    for tile in tl.static_range(TILES):
        state += load_state(base, value + tile, K, V, KEY_STRIDE, VALUE_STRIDE, M, GROUPS)
    line = tl.arange(0, L)[:, None]
    at = tl.arange(0, C)[None, :]
    begin = tl.where(line < 2, (line * KH + key_head) * K, 2 * KH * K + head * V)
    c = begin + at
    exists = (at < tl.where(line < 2, K, V)) & (line < 4)
    is_input = exists & (line < 3)
    taps = weights_of(CONV, c, is_input, TAPS)
    past = RING + slot * length * CHANNELS
    total = tl.zeros([L, C], tl.float32)
    for tap in tl.static_range(TAPS - 1):
        back = TAPS - 1 - tap
        cell = past + ((start - back) % length * CHANNELS + c)
        there = is_input & (start + line * 0 >= back)
        x = tl.load(cell, mask=there, other=0.0, cache_modifier=".cg")
        total = tl.where(there, total + taps[tap] * x, total)
    weight = tl.load(NORM + at, mask=at < V, other=0.0)
    decay = tl.load(DECAY + head)
    bias = tl.load(BIAS + head)
    one = tl.arange(0, 2)
    column = tl.arange(0, 8)[None, :]
    wait(PDL)
    if count > 0:
        alpha = tl.load(ALPHA + head + one * 0)
        beta = tl.load(BETA + head + one * 0)
        x_at = tl.where(line < 3, QKV + c, GATE + (head * V + at))
        x = tl.load(x_at, mask=exists, other=0.0)
        total = tl.where(line < 3, total + taps[TAPS - 1] * x, x)
        top = total if SILU else tl.where(line < 3, total, 1.0)
        active = tl.div_rn(top, exp(-total) + 1.0)
        scale = tl.where(line == 0, SCALE, 1.0)
        read = tl.where(line < 2, to_length(active, scale, L, C, LEVELS, SHUFFLE), active)
        tl.store(ROWS + c, read, mask=is_input)
        store_gates(GATES, alpha, beta, one, head, decay, bias, one == 0, H)
        tl.debug_barrier()  # what is walked is there
        own = tl.where(head < KH, 0, 2)
        kept = is_input & (line >= own)
        tl.store(past + (start % length * CHANNELS + c), x, mask=kept)
        a = tl.load(GATES + head)
        b = tl.load(GATES + H + head)
        v = ()
        for tile in tl.static_range(TILES):
            v_at = ROWS + 2 * KH * K + head * V + value + tile
            v += (tl.load(v_at, mask=value + tile < V, other=0.0),)
        q_at = ROWS + key_head * K + value * 0
        q = keys_at(q_at, K, GROUPS)
        k = keys_at(q_at + KH * K, K, GROUPS)
        tl.debug_barrier()  # so that no load is put off
        state = faded(state, a, TILES, GROUPS)
        sums = tile_sums(tile_products(state, k, K, M, TILES, EXCHANGE), TILES, K, M, EXCHANGE)
        state = learnt(state, k, v, b, sums, M, TILES, GROUPS)
        sums = tile_sums(tile_products(state, q, K, M, TILES, EXCHANGE), TILES, K, M, EXCHANGE)
        out_at = OUT + head * V + value + column
        inside = (column < TILES) & (value + column < V)
        tl.store(out_at, columns(sums, 0, TILES), mask=inside)
        tl.debug_barrier()  # the outputs are there
        live = exists & (line == 3)
        output = tl.load(OUT + (head * V + at) + line * 0, mask=live, other=0.0)
        if certain > 0:
            for tile in tl.static_range(TILES):
                store_state(
                    base, value + tile, state, tile * GROUPS, K, V, KEY_STRIDE, VALUE_STRIDE, M,
                    GROUPS,
                )  # fmt: skip
        number = tl.arange(0, L)
        finish(
            OUT, CODES, INFO, output, active, weight, number * 0, head, number == 3, groups, eps,
            H, V, QUANTISE, L, C, LEVELS, SHUFFLE,
        )  # fmt: skip
