"""The gated delta rule: linear attention whose state forgets by a decay and learns by an error.

Order, as `engine/reference/gated_delta_net.py`: tokens in turn; S = S * g; the error takes
sum(S * k) over the keys by 32 lanes and their tree; S = S + k * error; the output takes sum(S * q)
the same way. Key lengths up to 512, one segment.

A program walks all rows of a span for one head and B of its values, the state in registers: a tuple
of [B, 32] tensors, one for each 32 keys. Short windows scale queries and keys on the way; for long
ones `prepare` does it before, once for all programs and outside of the walk. On NVIDIA the lanes of
a value lie in eight neighbouring threads, four in each, and the tree's last three levels are
exchanges between them (a test reads from the compiled code that they do lie so); elsewhere the
compiler moves the lanes.
"""

# Tuples grow in loops that Triton unrolls.
# mypy: disable-error-code="assignment"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.errors import UnsupportedModelError
from engine.kernels.lanes import tree
from engine.kernels.linear import assembly
from engine.kernels.norms import rms_factor, segment_levels
from engine.kernels.scalar import exp, sigmoid, silu, softplus
from engine.models.config import GatedDeltaNetConfig
from engine.rows import Rows

# Values of a program of the walk and its warps: a warp has 4 values at a time, or turns of 4.
VALUES, WARPS = 16, 4
# Windows of more rows are prepared: from there on the walk is longer than a launch.
UNPREPARED_ROWS = 64
L2_EPS = tl.constexpr(1e-6)
# A value of the thread whose number differs in one bit.
SHUFFLES = tl.constexpr(
    tuple(f"shfl.sync.bfly.b32 $0, $1, {bit}, 0x1f, 0xffffffff;" for bit in (1, 2, 4))
)


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
        prepare[(count, triton.cdiv(2 * config.key_heads, 4) + 1)](
            qkv, alpha, beta, decay, bias, units, gates,
            HEADS=triton.next_power_of_2(heads), SHUFFLE=assembly(qkv) and keys % 32 == 0,
            num_warps=1, **shape,
        )  # fmt: skip
        decays, betas = gates, gates[:, heads:]
    # The threads' shares of a state are known where its keys are neighbours and whole groups.
    shuffle = assembly(qkv) and state.stride(2) == 1 and keys % 32 == 0
    block = max(4, min(VALUES, triton.next_power_of_2(values)))
    if rows.spans.shape[0]:
        walk[(triton.cdiv(values, block), heads, rows.spans.shape[0])](
            qkv, units, decays, betas, decay, bias, state, rows.spans, out, 1,
            SHUFFLE=shuffle, PREPARED=prepared, KEY_STRIDE=state.stride(2),
            VALUE_STRIDE=state.stride(3), B=block, num_warps=min(WARPS, block // 4), **shape,
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
    """K values in memory from each of the pointers AT, [M, 1]: a tuple of [M, 32]."""
    lane = tl.arange(0, 32)[None, :]
    parts = ()
    for g in tl.static_range(GROUPS):
        if K % 32 == 0:
            parts += (tl.load(AT + (g * 32 + lane)),)
        else:
            parts += (tl.load(AT + (g * 32 + lane), mask=g * 32 + lane < K, other=0.0),)
    return parts


@triton.jit
def dot(a, b, M: tl.constexpr, GROUPS: tl.constexpr, SHUFFLE: tl.constexpr):
    """Lanes from 0, the groups in order, then the tree: M sums over GROUPS * 32 products.

    Each sum stands in all columns of [M, 8]. SHUFFLE: thread t of eight has lanes 4t to 4t + 3 of a
    row, and threads exchange what they have; adding in either order gives the same bits.
    """
    lanes = 0.0 + a[0] * b[0]
    for g in tl.static_range(1, GROUPS):
        lanes = lanes + a[g] * b[g]
    if SHUFFLE:
        left, right = tl.split(tl.reshape(lanes, [M, 16, 2]))
        left, right = tl.split(tl.reshape(left + right, [M, 8, 2]))
        total = left + right
        for other in tl.static_range(3):
            total = total + tl.inline_asm_elementwise(
                SHUFFLES[other], "=f,f", [total], dtype=tl.float32, is_pure=False, pack=1
            )
    else:
        total = tl.broadcast_to(tree(lanes, M)[:, None], [M, 8])
    return total


@triton.jit
def spread(x, M: tl.constexpr):
    """[M, 8] with equal columns -> [M, 32] with the same ones; nothing moves between threads."""
    twice = tl.reshape(tl.join(x, x), [M, 16])
    return tl.reshape(tl.join(twice, twice), [M, 32])


@triton.jit
def unit(x, scale, M: tl.constexpr, GROUPS: tl.constexpr, SHUFFLE: tl.constexpr):
    """x / length * scale, a tuple of [M, 32] tensors."""
    one = tl.full([M, 8], 1.0, tl.float32)
    factor = tl.div_rn(one, tl.sqrt_rn(dot(x, x, M, GROUPS, SHUFFLE) + L2_EPS))
    factor = spread(factor, M)
    parts = ()
    for g in tl.static_range(GROUPS):
        parts += ((x[g] * factor) * scale,)
    return parts


@triton.jit
def forget(a, decay, bias):
    """exp(A * softplus(a + dt))."""
    return exp(decay * softplus(a + bias))


@triton.jit
def prepare(
    QKV, ALPHA, BETA, DECAY, BIAS, UNITS, GATES,
    SCALE: tl.constexpr, KH: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    GROUPS: tl.constexpr, HEADS: tl.constexpr, SHUFFLE: tl.constexpr,
):  # fmt: skip
    """UNITS [R, 2 * KH * K]: scaled queries and keys. GATES [R, 2 * H]: decays, betas.

    Grid (rows, fours of query heads and key heads, then one for the gates).
    """
    row = tl.program_id(0).to(tl.int64)
    if tl.program_id(1) == tl.num_programs(1) - 1:
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
        # The last program may have fewer heads left: it makes its last one several times.
        part = tl.minimum(tl.program_id(1) * 4 + tl.arange(0, 4), 2 * KH - 1)[:, None]
        x = groups_at(QKV + row * (2 * KH * K + H * V) + part * K, K, GROUPS)
        y = unit(x, tl.where(part < KH, SCALE, 1.0), 4, GROUPS, SHUFFLE)
        for g in tl.static_range(GROUPS):
            at = g * 32 + lane
            tl.store(UNITS + row * (2 * KH * K) + part * K + at, y[g], mask=at < K)


@triton.jit
def step(
    state, q, k, v, a, b, decay, bias,
    SCALE: tl.constexpr, PREPARED: tl.constexpr, B: tl.constexpr, GROUPS: tl.constexpr,
    SHUFFLE: tl.constexpr,
):  # fmt: skip
    """One token: the new state, the output [B, 8]. a, b: decay and beta, or what they come from."""
    if not PREPARED:
        q = unit(q, SCALE, B, GROUPS, SHUFFLE)
        k = unit(k, 1.0, B, GROUPS, SHUFFLE)
        a = forget(a, decay, bias)
        b = sigmoid(b)
    faded = ()
    for g in tl.static_range(GROUPS):
        faded += (state[g] * a,)
    error = spread((v - dot(faded, k, B, GROUPS, SHUFFLE)) * b, B)
    learnt = ()
    for g in tl.static_range(GROUPS):
        learnt += (faded[g] + k[g] * error,)
    return learnt, dot(learnt, q, B, GROUPS, SHUFFLE)


@triton.jit(do_not_specialize=["one"])
def walk(
    QKV, UNITS, ALPHA, BETA, DECAY, BIAS, STATE, SPANS, OUT, one,
    SCALE: tl.constexpr, PREPARED: tl.constexpr,
    KH: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr, GROUPS: tl.constexpr, B: tl.constexpr,
    SHUFFLE: tl.constexpr,
):  # fmt: skip
    """Grid (blocks of B values, heads, spans).

    PREPARED: UNITS is what `prepare` made, ALPHA and BETA are its gates, row by row of 2 * H.
    Otherwise UNITS is QKV. All tensors of a row have the layout of the state, in which a value's
    keys lie in eight threads: so queries and keys are loaded by each thread that needs them, and
    `one`, a stride of 1 that the compiler does not know, keeps it from another layout for values.
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
    value = (tl.program_id(0) * B + tl.arange(0, B))[:, None]
    column = tl.arange(0, 8)[None, :]
    if count > 0:
        lane = tl.arange(0, 32)[None, :]
        base = STATE + (slot * H + head) * (K * V) + value * VALUE_STRIDE
        state = ()
        for g in tl.static_range(GROUPS):
            held = (value < V) & (g * 32 + lane < K)
            cell = base + (g * 32 + lane) * KEY_STRIDE
            state += (tl.load(cell, mask=held, other=0.0),)
        decay = tl.load(DECAY + head)
        bias = tl.load(BIAS + head)
        q_at = UNITS + (head % KH) * K + value * 0
        k_at = q_at + KH * K
        v_at = QKV + 2 * KH * K + head * V + value
        a_at = ALPHA + head
        b_at = BETA + head
        out_at = OUT + head * V + value * one + column
        # What a row needs is loaded while the row before it is computed.
        q = groups_at(q_at + first * UNITS_ROW, K, GROUPS)
        k = groups_at(k_at + first * UNITS_ROW, K, GROUPS)
        v = tl.load(v_at + first * QKV_ROW, mask=value < V, other=0.0)
        a = tl.load(a_at + first * GATES_ROW)
        b = tl.load(b_at + first * GATES_ROW)
        for drafts in tl.static_range(2):
            for i in range(certain if drafts else 0, count if drafts else certain):
                following = first + tl.minimum(i + 1, count - 1)
                q_next = groups_at(q_at + following * UNITS_ROW, K, GROUPS)
                k_next = groups_at(k_at + following * UNITS_ROW, K, GROUPS)
                v_next = tl.load(v_at + following * QKV_ROW, mask=value < V, other=0.0)
                a_next = tl.load(a_at + following * GATES_ROW)
                b_next = tl.load(b_at + following * GATES_ROW)
                state, out = step(
                    state, q, k, v, a, b, decay, bias, SCALE, PREPARED, B, GROUPS, SHUFFLE
                )
                tl.store(out_at + (first + i) * (H * V), out, mask=(value < V) & (column == 0))
                q, k, v, a, b = q_next, k_next, v_next, a_next, b_next
            if drafts == 0 and certain > 0:  # draft rows go on in registers only
                for g in tl.static_range(GROUPS):
                    held = (value < V) & (g * 32 + lane < K)
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
