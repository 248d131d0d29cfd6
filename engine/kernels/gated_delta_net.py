"""The gated delta rule: linear attention whose state forgets by a decay and learns by an error.

Order, as `engine/reference/gated_delta_net.py`: tokens in turn; S = S * g; the error takes
sum(S * k) over the keys by 32 lanes and their tree; S = S + k * error; the output takes sum(S * q)
the same way. Key lengths up to 512, one segment.

A program walks all rows of a span for one head and B of its values, the state in registers: a tuple
of [B, 32] tensors, one for each 32 keys. Short windows scale queries and keys on the way; for long
ones `prepare` does it before, once for all programs and outside of the walk.
"""

# Tuples grow in loops that Triton unrolls.
# mypy: disable-error-code="assignment"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.errors import UnsupportedModelError
from engine.kernels.lanes import tree
from engine.kernels.norms import rms_factor, segment_levels
from engine.kernels.scalar import exp, sigmoid, silu, softplus
from engine.models.config import GatedDeltaNetConfig
from engine.rows import Rows

# Values of a program of the walk and its warps.
VALUES, WARPS = 32, 4
# Windows of more rows are prepared: from there on the walk is longer than a launch.
UNPREPARED_ROWS = 64
L2_EPS = tl.constexpr(1e-6)


def gated_delta_rule(
    qkv: torch.Tensor,
    alpha: torch.Tensor,
    beta: torch.Tensor,
    decay: torch.Tensor,
    bias: torch.Tensor,
    state: torch.Tensor,
    config: GatedDeltaNetConfig,
    rows: Rows,
) -> torch.Tensor:
    """Outputs of all rows, float32 [R, H * V]; only certain rows change `state`.

    As `engine.reference.gated_delta_net.gated_delta_rule`; rows of no span are not written. The
    state [S, H, K, V] may lie with its keys or with its values next to each other in memory: keys
    (`torch.zeros(S, H, V, K).transpose(2, 3)`) are faster.
    """
    heads, keys, values = config.value_heads, config.key_length, config.value_length
    if keys > 512:
        raise UnsupportedModelError(
            f"ssm.state_size is {keys}; the GPU's recurrence holds at most 512 keys",
            hint="Run this model with --device cpu.",
        )
    qkv, alpha, beta = qkv.contiguous(), alpha.contiguous(), beta.contiguous()
    count = qkv.shape[0]
    out = qkv.new_empty(count, heads * values)
    prepared = count > UNPREPARED_ROWS
    units, decays, betas = qkv, alpha, beta
    shape = {
        "SCALE": keys**-0.5, "KH": config.key_heads, "H": heads, "K": keys, "V": values,
        "GROUPS": triton.cdiv(keys, 32), "enable_fp_fusion": False,
    }  # fmt: skip
    if prepared:
        units = qkv.new_empty(count, 2 * config.key_heads * keys)
        gates = qkv.new_empty(count, 2 * heads)
        prepare[(count, 2 * config.key_heads + 1)](
            qkv, alpha, beta, decay, bias, units, gates,
            HEADS=triton.next_power_of_2(heads), num_warps=1, **shape,
        )  # fmt: skip
        decays, betas = gates, gates[:, heads:]
    block = min(VALUES, triton.next_power_of_2(values))
    if rows.spans.shape[0]:
        walk[(triton.cdiv(values, block), heads, rows.spans.shape[0])](
            qkv, units, decays, betas, decay, bias, state, rows.spans, out,
            PREPARED=prepared, KEY_STRIDE=state.stride(2), VALUE_STRIDE=state.stride(3),
            B=block, num_warps=WARPS, **shape,
        )  # fmt: skip
    return out


def gated_norm(
    x: torch.Tensor,
    gate: torch.Tensor,
    weight: torch.Tensor,
    config: GatedDeltaNetConfig,
    eps: float,
) -> torch.Tensor:
    """RMS norm over each head's V values, times the activated gate. float32 [R, H * V]."""
    x, gate = x.contiguous(), gate.contiguous()
    out = torch.empty_like(x)
    width = weight.numel()
    if x.shape[0]:
        norm_and_gate[(x.shape[1] // width, x.shape[0])](
            x, gate, weight, out, eps, K=width, LEVELS=segment_levels(width),
            SILU=config.gate == "silu", B=triton.next_power_of_2(width),
            num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
    return out


@triton.jit
def groups_at(AT, K: tl.constexpr, GROUPS: tl.constexpr):
    """K consecutive values as a tuple of [1, 32] tensors."""
    lane = tl.arange(0, 32)[None, :]
    parts = ()
    for g in tl.static_range(GROUPS):
        parts += (tl.load(AT + g * 32 + lane, mask=g * 32 + lane < K, other=0.0),)
    return parts


@triton.jit
def dot(a, b, M: tl.constexpr, GROUPS: tl.constexpr):
    """Lanes from 0, the groups in order, then the tree: [M] sums over GROUPS * 32 products."""
    lanes = 0.0 + a[0] * b[0]
    for g in tl.static_range(1, GROUPS):
        lanes = lanes + a[g] * b[g]
    return tree(lanes, M)


@triton.jit
def unit(x, scale, GROUPS: tl.constexpr):
    """x / length * scale, a tuple of [1, 32] tensors."""
    one = tl.full([1], 1.0, tl.float32)
    factor = tl.div_rn(one, tl.sqrt_rn(dot(x, x, 1, GROUPS) + L2_EPS))[:, None]
    parts = ()
    for g in tl.static_range(GROUPS):
        parts += ((x[g] * factor) * scale,)
    return parts


@triton.jit
def forget(a, decay, bias):
    """exp(A * softplus(a + dt)) of tensors."""
    return exp(decay * softplus(a + bias))


@triton.jit
def prepare(
    QKV, ALPHA, BETA, DECAY, BIAS, UNITS, GATES,
    SCALE: tl.constexpr, KH: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    GROUPS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """UNITS [R, 2 * KH * K]: scaled queries and keys. GATES [R, 2 * H]: decays, betas.

    Grid (rows, 2 * KH + 1): query heads, key heads, gates.
    """
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    if part == 2 * KH:
        h = tl.arange(0, HEADS)
        live = h < H
        a = tl.load(ALPHA + row * H + h, mask=live, other=0.0)
        decay = tl.load(DECAY + h, mask=live, other=0.0)
        bias = tl.load(BIAS + h, mask=live, other=0.0)
        b = tl.load(BETA + row * H + h, mask=live, other=0.0)
        tl.store(GATES + row * 2 * H + h, forget(a, decay, bias), mask=live)
        tl.store(GATES + row * 2 * H + H + h, sigmoid(b), mask=live)
    else:
        lane = tl.arange(0, 32)[None, :]
        x = groups_at(QKV + row * (2 * KH * K + H * V) + part * K, K, GROUPS)
        y = unit(x, tl.where(part < KH, SCALE, 1.0), GROUPS)
        for g in tl.static_range(GROUPS):
            at = g * 32 + lane
            tl.store(UNITS + row * (2 * KH * K) + part * K + at, y[g], mask=at < K)


@triton.jit
def step(
    state, q, k, v, a, b, decay, bias,
    SCALE: tl.constexpr, PREPARED: tl.constexpr, B: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """One token: the new state and the output [B]. a, b: decay and beta, or what they come from."""
    if not PREPARED:
        q = unit(q, SCALE, GROUPS)
        k = unit(k, 1.0, GROUPS)
        a = forget(a, decay, bias)
        b = sigmoid(b)
    faded = ()
    for g in tl.static_range(GROUPS):
        faded += (state[g] * a[:, None],)
    error = ((v - dot(faded, k, B, GROUPS)) * b)[:, None]
    learnt = ()
    for g in tl.static_range(GROUPS):
        learnt += (faded[g] + k[g] * error,)
    return learnt, dot(learnt, q, B, GROUPS)


@triton.jit
def walk(
    QKV, UNITS, ALPHA, BETA, DECAY, BIAS, STATE, SPANS, OUT,
    SCALE: tl.constexpr, PREPARED: tl.constexpr,
    KH: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr, GROUPS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Grid (blocks of B values, heads, spans).

    PREPARED: UNITS is what `prepare` made, ALPHA and BETA are its gates, row by row of 2 * H.
    Otherwise UNITS is QKV.
    """
    head = tl.program_id(1)
    line = SPANS + tl.program_id(2) * 5
    slot = tl.load(line).to(tl.int64)
    first = tl.load(line + 1).to(tl.int64)
    count = tl.load(line + 2)
    certain = tl.minimum(tl.load(line + 4), count)
    QKV_ROW: tl.constexpr = 2 * KH * K + H * V
    UNITS_ROW: tl.constexpr = 2 * KH * K if PREPARED else QKV_ROW
    GATES_ROW: tl.constexpr = 2 * H if PREPARED else H
    v_at = tl.program_id(0) * B + tl.arange(0, B)
    one = head + tl.arange(0, 1)
    if count > 0:
        lane = tl.arange(0, 32)[None, :]
        base = STATE + (slot * H + head) * (K * V) + v_at[:, None] * VALUE_STRIDE
        state = ()
        for g in tl.static_range(GROUPS):
            held = (v_at < V)[:, None] & (g * 32 + lane < K)
            cell = base + (g * 32 + lane) * KEY_STRIDE
            state += (tl.load(cell, mask=held, other=0.0),)
        decay = tl.load(DECAY + one)
        bias = tl.load(BIAS + one)
        q_at = UNITS + (head % KH) * K
        k_at = q_at + KH * K
        value_at = QKV + 2 * KH * K + head * V + v_at
        # What a row needs is loaded while the row before it is computed.
        q = groups_at(q_at + first * UNITS_ROW, K, GROUPS)
        k = groups_at(k_at + first * UNITS_ROW, K, GROUPS)
        v = tl.load(value_at + first * QKV_ROW, mask=v_at < V, other=0.0)
        a = tl.load(ALPHA + first * GATES_ROW + one)
        b = tl.load(BETA + first * GATES_ROW + one)
        for drafts in tl.static_range(2):
            for i in range(certain if drafts else 0, count if drafts else certain):
                row = first + i
                following = first + tl.minimum(i + 1, count - 1)
                q_next = groups_at(q_at + following * UNITS_ROW, K, GROUPS)
                k_next = groups_at(k_at + following * UNITS_ROW, K, GROUPS)
                v_next = tl.load(value_at + following * QKV_ROW, mask=v_at < V, other=0.0)
                a_next = tl.load(ALPHA + following * GATES_ROW + one)
                b_next = tl.load(BETA + following * GATES_ROW + one)
                state, out = step(state, q, k, v, a, b, decay, bias, SCALE, PREPARED, B, GROUPS)
                tl.store(OUT + row * (H * V) + head * V + v_at, out, mask=v_at < V)
                q, k, v, a, b = q_next, k_next, v_next, a_next, b_next
            if drafts == 0 and certain > 0:  # draft rows go on in registers only
                for g in tl.static_range(GROUPS):
                    held = (v_at < V)[:, None] & (g * 32 + lane < K)
                    tl.store(base + (g * 32 + lane) * KEY_STRIDE, state[g], mask=held)


@triton.jit
def norm_and_gate(
    X, GATE, WEIGHT, OUT, eps,
    K: tl.constexpr, LEVELS: tl.constexpr, SILU: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """((x * factor) * weight) * activated gate, over runs of K values. Grid (runs a row, rows)."""
    run = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    factor = rms_factor(X + run * K, K, LEVELS, eps)
    at = tl.arange(0, B)
    x = tl.load(X + run * K + at, mask=at < K, other=0.0)
    w = tl.load(WEIGHT + at, mask=at < K, other=0.0)
    gate = tl.load(GATE + run * K + at, mask=at < K, other=0.0)
    active = silu(gate) if SILU else sigmoid(gate)
    tl.store(OUT + run * K + at, ((x * factor) * w) * active, mask=at < K)
