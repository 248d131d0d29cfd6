"""The mixer of gated delta nets: convolution, gated delta rule, gated norm.

A window of one row takes one launch (`delta_one.py`), others three, so that only the walk goes row
by row: `arrange` has all rows at once, `walk_spans` few values a program, `finish_rows` all rows
again. The walk's state is on its way while `arrange` runs.

What the walk reads of a row is kept: drafts that stay are walked once more, from the state that the
certain rows left.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from engine.errors import UnsupportedModelError
from engine.kernels.convolution import convolved, keep_last, weights_of
from engine.kernels.delta_one import mix_row
from engine.kernels.delta_rows import finish, store_gates, to_length
from engine.kernels.delta_walk import load_state, walk, walk_ahead
from engine.kernels.dependent import launch_options, wait
from engine.kernels.inputs import Input, as_input, room
from engine.kernels.linear import assembly
from engine.kernels.scalar import sigmoid, silu
from engine.kernels.spans import capacity, line_of, share_of, shares
from engine.models.config import GatedDeltaNetConfig
from engine.rows import Rows

# Windows of more rows are prompts: their rows are spread over programs.
MOST_ROWS = 64
# Numbers in a head's state that a program holds, and its warps, where a window is one row.
MOST_STATE, ROW_WARPS = 1 << 14, 8
# Values of a warp of the walk at a time; its warps in short windows, its most tiles in long ones.
VALUES, WARPS, TILES = 4, 4, 4
# Rows of a prompt that the walk has on their way.
AHEAD = 5
# Rows of a tile before and after the walk, in short windows and in long ones.
TILE, LONG_TILE = 4, 16


class Walked(NamedTuple):
    """What the walk reads of a window's rows.

    rows: float32 [R, channels], queries and keys scaled to length, values. gates: [R, 2 * H],
    decays and betas.
    """

    rows: torch.Tensor
    gates: torch.Tensor


def delta_mixer(
    qkv: torch.Tensor,
    gate: torch.Tensor,
    alpha: torch.Tensor,
    beta: torch.Tensor,
    conv: torch.Tensor,
    ring: torch.Tensor,
    decay: torch.Tensor,
    bias: torch.Tensor,
    state: torch.Tensor,
    norm: torch.Tensor,
    config: GatedDeltaNetConfig,
    eps: float,
    rows: Rows,
) -> tuple[Input, Walked]:
    """As `engine.reference.gated_delta_net.delta_mixer`; rows of no span mean nothing.

    The state [S, H, K, V] may lie with its keys or with its values next to each other in memory:
    keys (`torch.zeros(S, H, V, K).transpose(2, 3)`) are faster.
    """
    heads, keys, values = config.value_heads, config.key_length, config.value_length
    if max(keys, values) > 512:
        raise UnsupportedModelError(
            f"heads of {keys} keys and {values} values; the GPU's recurrence holds at most 512",
            hint="Run this model with --device cpu.",
        )
    count, spans = qkv.shape[0], rows.spans.shape[0]
    out = room(count, heads * values, qkv.device)
    kept = Walked(qkv.new_empty(count, config.channels), qkv.new_empty(count, 2 * heads))
    if not spans or not count:
        return out, kept
    # Rows that begin at whole 16 bytes are read in such pieces.
    aligned = 1 if qkv.stride(0) % 4 or gate.stride(0) % 4 else 4
    columns = triton.next_power_of_2(max(keys, values, 32))
    shape = {
        "H": heads, "V": values, "C": columns, "LEVELS": (columns // 32).bit_length() - 1,
        # A warp has a row.
        "SHUFFLE": assembly(qkv) and keys == values == 128, **launch_options(qkv),
    }  # fmt: skip
    read = {"SCALE": keys**-0.5, "KH": config.key_heads, "K": keys, "TAPS": conv.shape[1], **shape}
    finished = {"SILU": config.gate == "silu", "QUANTISE": values % 32 == 0}
    made = out.values, out.codes, out.info, out.codes.shape[1]
    if count == spans == 1 and keys * values <= MOST_STATE:
        together = min(4 * ROW_WARPS, triton.next_power_of_2(values))
        mix_row[(heads,)](
            qkv, gate, alpha, beta, conv, ring, decay, bias, ring.shape[1], rows.spans, state, norm,
            *kept, *made, eps, L=ROW_WARPS, M=together, TILES=triton.cdiv(values, together),
            KEY_STRIDE=state.stride(2), VALUE_STRIDE=state.stride(3), GROUPS=triton.cdiv(keys, 32),
            EXCHANGE=_exchanges(state) and together == 4 * ROW_WARPS, num_warps=ROW_WARPS,
            **read, **finished,
        )  # fmt: skip
        return (out if values % 32 == 0 else as_input(out.values)), kept
    long = count > MOST_ROWS
    tile = LONG_TILE if long else TILE
    arrange[(2 * config.key_heads + heads + 1, shares(rows, count, tile) if long else spans)](
        qkv, qkv.stride(0) // aligned, alpha, alpha.stride(0), beta, beta.stride(0),
        conv, ring, decay, bias, ring.shape[1], rows.spans, *kept, spans, ALIGNED=aligned,
        KEPT=triton.next_power_of_2(ring.shape[1]), HEADS=triton.next_power_of_2(heads),
        CAPACITY=capacity(rows) if long else 0, SHARED=long,
        R=max(tile, triton.next_power_of_2(conv.shape[1] - 1)), num_warps=4, **read,
    )  # fmt: skip
    _walk(kept, out.values, state, config, rows, long)
    tile, warps = (tile, 4) if long else (1, 1)
    finish_rows[(heads, triton.cdiv(count, tile))](
        gate, gate.stride(0) // aligned, norm, *made, count, eps, ALIGNED=aligned, R=tile,
        num_warps=warps, **shape, **finished,
    )  # fmt: skip
    return (out if values % 32 == 0 else as_input(out.values)), kept


def delta_commit(
    kept: Walked,
    decay: torch.Tensor,
    bias: torch.Tensor,
    state: torch.Tensor,
    config: GatedDeltaNetConfig,
    rows: Rows,
) -> None:
    """Applies kept draft rows to the state. `rows`: spans over the rows of the last window."""
    if rows.spans.shape[0]:
        _walk(kept, None, state, config, rows, False)


def _walk(
    kept: Walked,
    out: torch.Tensor | None,
    state: torch.Tensor,
    config: GatedDeltaNetConfig,
    rows: Rows,
    long: bool,
) -> None:
    """Changes the state; writes outputs, float32 [R, H * V], if there is a place for them."""
    keys, values = config.key_length, config.value_length
    pieces = triton.cdiv(values, VALUES)
    warps = 1 if long else min(WARPS, triton.next_power_of_2(pieces))
    tiles = 1
    if long:
        # One program for each scheduler of warps: none waits for another. Programs that start early
        # lie where the kernel before leaves room, more on some multiprocessors than on others: 3.7
        # ms, where a walk alone took 1.8.
        tiles = min(TILES, triton.cdiv(config.value_heads * pieces, schedulers(state.device)))
    walk_spans[(triton.cdiv(pieces, warps * tiles), config.value_heads, rows.spans.shape[0])](
        *kept, kept.rows if out is None else out, state, rows.spans, _zero(state.device), 1,
        KH=config.key_heads, H=config.value_heads, K=keys, V=values, M=VALUES * warps, TILES=tiles,
        KEY_STRIDE=state.stride(2), VALUE_STRIDE=state.stride(3), GROUPS=triton.cdiv(keys, 32),
        OUTPUT=out is not None, AHEAD=AHEAD if long else 0, SHUFFLE=_exchanges(state),
        num_warps=warps, **launch_options(state, early=not long),
    )  # fmt: skip


def _exchanges(state: torch.Tensor) -> bool:
    """Whether the threads' shares of a state are known: its keys are neighbours, whole groups."""
    return assembly(state) and state.stride(2) == 1 and state.shape[2] % 32 == 0


@lru_cache(maxsize=16)
def schedulers(device: torch.device) -> int:
    """Warps that a card runs at the same moment: four a multiprocessor."""
    if device.type != "cuda":
        return 4 * 132
    return 4 * torch.cuda.get_device_properties(device).multi_processor_count


@lru_cache(maxsize=16)
def _zero(device: torch.device) -> torch.Tensor:
    return torch.zeros(1, device=device)


@triton.jit(
    do_not_specialize=["qkv_row", "alpha_row", "beta_row", "length", "spans"],
    do_not_specialize_on_alignment=["ALPHA", "BETA", "SPANS"],
)
def arrange(
    QKV, qkv_row, ALPHA, alpha_row, BETA, beta_row, CONV, RING, DECAY, BIAS, length, SPANS, ROWS,
    GATES, spans,
    SCALE: tl.constexpr, KH: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, LEVELS: tl.constexpr, TAPS: tl.constexpr, KEPT: tl.constexpr,
    HEADS: tl.constexpr, CAPACITY: tl.constexpr, SHARED: tl.constexpr, R: tl.constexpr,
    ALIGNED: tl.constexpr, SHUFFLE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """What the walk reads. Grid (queries of key heads, keys, values, gates; spans).

    SHARED: the second axis is shares of R rows, R at least the reach of the taps. A span's ring is
    read and written by one program a part: that of its first rows.
    """
    CHANNELS: tl.constexpr = 2 * KH * K + H * V
    number = tl.program_id(0)
    is_unit = number < 2 * KH
    at = tl.arange(0, C)[None, :]
    c = tl.where(is_unit, number * K, 2 * KH * K + (number - 2 * KH) * V) + at
    width = tl.where(is_unit, K, tl.where(number < 2 * KH + H, V, 0))
    exists = at < width
    # In one tile, a row's warp has its weights; more rows a warp share them.
    each = c if SHARED else c + tl.zeros([R, 1], tl.int32)
    taps = weights_of(CONV, each, each - c + at < width, TAPS)
    h = tl.arange(0, HEADS)[None, :]
    decay = tl.load(DECAY + h, mask=h < H, other=0.0)
    bias = tl.load(BIAS + h, mask=h < H, other=0.0)
    span, tile = tl.program_id(1), 0
    if not SHARED:
        slot, first, count, start, _ = line_of(SPANS, span)
    # In every program: the walk may then read what lies before this window without its own wait.
    wait(PDL)
    if SHARED:
        span, tile = share_of(SPANS, spans, tl.program_id(1), R, CAPACITY)
        slot, first, count, start, _ = line_of(SPANS, tl.minimum(span, spans - 1))
    if span < spans:
        past = RING + slot * length * CHANNELS
        qkv_row = qkv_row * ALIGNED
        x_at = QKV + first * qkv_row
        for t in range(tile, tile + 1 if SHARED else (count + R - 1) // R):
            i = (t * R + tl.arange(0, R))[:, None]
            if number == 2 * KH + H:
                here = (i < count) & (h < H)
                a = tl.load(ALPHA + (first + i) * alpha_row + h, mask=here, other=0.0)
                b = tl.load(BETA + (first + i) * beta_row + h, mask=here, other=0.0)
                store_gates(GATES, a, b, first + i, h, decay, bias, here, H)
            else:
                live = (i < count) & exists
                x, input = convolved(
                    x_at, past, taps, i, c, live, qkv_row, start, length, CHANNELS, TAPS, 1, R, C,
                )  # fmt: skip
                if is_unit:
                    scale = tl.where(number < KH, SCALE, 1.0)
                    x = to_length(x, scale, R, C, LEVELS, SHUFFLE)
                tl.store(ROWS + (first + i) * CHANNELS + c, x, mask=live)
                if not SHARED:
                    tl.debug_barrier()  # the ring is read, by every thread
                    cell = (start + i) % length * CHANNELS + c
                    tl.store(past + cell, input, mask=live & (i >= count - length))
        if SHARED and tile == 0:
            tl.debug_barrier()
            keep_last(x_at, past, c, exists, qkv_row, count, start, length, CHANNELS, KEPT)


@triton.jit(do_not_specialize=["one"], do_not_specialize_on_alignment=["SPANS"])
def walk_spans(
    ROWS, GATES, OUT, STATE, SPANS, ZERO, one,
    KH: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, M: tl.constexpr,
    TILES: tl.constexpr, KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr, GROUPS: tl.constexpr,
    OUTPUT: tl.constexpr, AHEAD: tl.constexpr, SHUFFLE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (blocks of TILES * M values, heads, spans). AHEAD: rows are read so early, if not 0.

    OUTPUT: the kernel before is `arrange`, which changes no state and lets this one start only when
    all kernels before it have ended: the state is loaded while it runs.
    """
    if not OUTPUT:
        wait(PDL)
    head = tl.program_id(1)
    slot, first, count, _, certain = line_of(SPANS, tl.program_id(2))
    base = STATE + (slot * H + head) * (K * V)
    if count > 0:
        if AHEAD:
            walk_ahead(
                ROWS, GATES, OUT, base, head, first, count, certain, one,
                KH, H, K, V, KEY_STRIDE, VALUE_STRIDE, M, TILES, GROUPS, SHUFFLE, AHEAD, PDL,
            )  # fmt: skip
        else:
            value = (tl.program_id(0) * M + tl.arange(0, M))[:, None]
            state = load_state(base, value, K, V, KEY_STRIDE, VALUE_STRIDE, M, GROUPS)
            if OUTPUT:
                wait(PDL)
            walk(
                ROWS, GATES, OUT, ZERO, base, state, value, head, first, count, certain, one,
                KH, H, K, V, KEY_STRIDE, VALUE_STRIDE, M, GROUPS, OUTPUT, SHUFFLE,
            )  # fmt: skip
    elif OUTPUT:
        wait(PDL)


@triton.jit(do_not_specialize=["gate_row", "groups", "rows"])
def finish_rows(
    GATE, gate_row, NORM, VALUES, CODES, INFO, groups, rows, eps,
    H: tl.constexpr, V: tl.constexpr, C: tl.constexpr, LEVELS: tl.constexpr, SILU: tl.constexpr,
    QUANTISE: tl.constexpr, R: tl.constexpr, ALIGNED: tl.constexpr, SHUFFLE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Grid (heads, tiles of R rows).

    What kernels before `arrange` wrote is there without waiting, past the cache of the first level.
    """
    head = tl.program_id(0)
    at = tl.arange(0, C)[None, :]
    row = tl.program_id(1).to(tl.int64) * R + tl.arange(0, R)
    mask = (row < rows)[:, None] & (at < V)
    weight = tl.load(NORM + at, mask=at < V, other=0.0)
    gate_at = GATE + row[:, None] * (gate_row * ALIGNED) + head * V + at
    gate = tl.load(gate_at, mask=mask, other=0.0, cache_modifier=".cg")
    active = silu(gate) if SILU else sigmoid(gate)
    wait(PDL)
    x = tl.load(VALUES + row[:, None] * (H * V) + head * V + at, mask=mask, other=0.0)
    finish(
        VALUES, CODES, INFO, x, active, weight, row, head, row < rows, groups, eps,
        H, V, QUANTISE, R, C, LEVELS, SHUFFLE,
    )  # fmt: skip
