"""The gated delta rule: linear attention whose state forgets by a decay and learns by an error.

For each value head j with key head j % key_heads, per token:
S *= exp(g); e = (v - S^T k) * beta; S += k e^T; out = S^T q,
with q, k scaled to length 1 (eps 1e-6), q also by key_length ** -0.5, beta = sigmoid(b) and
g = A * softplus(a + dt), A = -exp(A_log) as the file stores it. (Gated Delta Networks, 2024.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from engine.models.config import GatedDeltaNetConfig
from engine.reference.compiled import compiled
from engine.reference.convolution import causal_convolution
from engine.reference.lanes import LANES, SEGMENT, dot, tree_columns
from engine.reference.scalar import exp, sigmoid, silu, softplus
from engine.rows import Rows

_L2_EPS = np.float32(1e-6)


class DeltaInputs(NamedTuple):
    """What the delta rule read for a window's rows: enough to apply draft rows once kept."""

    qkv: torch.Tensor
    alpha: torch.Tensor
    beta: torch.Tensor


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
) -> tuple[torch.Tensor, DeltaInputs]:
    """Convolution, delta rule and gated norm of all rows, float32 [R, H * V], as an input of
    matrices; certain rows change `state`. The second result is what `delta_commit` takes.

    qkv: float32 [R, channels]; gate: [R, H * V]; alpha, beta: [R, H]; conv: [channels, taps]; ring:
    [S, L, channels]; norm: [V]; the rest as `gated_delta_rule`.
    """
    inputs = DeltaInputs(causal_convolution(qkv, ring, conv, 1, rows), alpha, beta)
    out = gated_delta_rule(*inputs, decay, bias, state, config, rows)
    return gated_norm(out, gate, norm, config, eps), inputs


def delta_commit(
    inputs: DeltaInputs,
    decay: torch.Tensor,
    bias: torch.Tensor,
    state: torch.Tensor,
    config: GatedDeltaNetConfig,
    kept: Rows,
) -> None:
    """Applies kept draft rows to the state. `kept`: spans over the rows of the last window."""
    gated_delta_rule(*inputs, decay, bias, state, config, kept)


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

    qkv: float32 [R, channels] after the convolution; alpha, beta: float32 [R, H]; decay (A) and
    bias (dt): float32 [H]; state: float32 [S, H, K, V]. Draft rows go on from a copy of the state.
    """
    out = torch.empty(qkv.shape[0], config.value_heads * config.value_length)
    recur(
        qkv.numpy(),
        alpha.numpy(),
        beta.numpy(),
        decay.numpy(),
        bias.numpy(),
        state.numpy(),
        config.key_heads,
        np.float32(config.key_length**-0.5),
        rows.spans.numpy(),
        out.numpy(),
    )
    return out


def gated_norm(
    x: torch.Tensor,
    gate: torch.Tensor,
    weight: torch.Tensor,
    config: GatedDeltaNetConfig,
    eps: float,
) -> torch.Tensor:
    """RMS norm over each head's V values, times the activated gate. float32 [R, H * V]."""
    out = torch.empty_like(x)
    norm_and_gate(
        x.numpy(), gate.numpy(), weight.numpy(), np.float32(eps), config.gate == "silu", out.numpy()
    )
    return out


@compiled
def unit(x: Any, scale: Any, lanes: Any, out: Any) -> None:
    """out = x / length * scale."""
    factor = np.float32(1) / np.sqrt(dot(x, x, lanes) + _L2_EPS)
    for i in range(x.size):
        out[i] = (x[i] * factor) * scale


@compiled
def step(
    state: Any,
    q: Any,
    k: Any,
    v: Any,
    decay: Any,
    beta: Any,
    lanes: Any,
    part: Any,
    error: Any,
    out: Any,
) -> None:
    """One token of one head. state: float32 [K, V]; the sums over K go by lanes."""
    for start in range(0, k.size, SEGMENT):
        lanes[:] = np.float32(0)
        for i in range(start, min(start + SEGMENT, k.size)):
            row = state[i]
            lane = lanes[(i - start) % LANES]
            key = k[i]
            for n in range(v.size):
                row[n] = row[n] * decay
                lane[n] += row[n] * key
        tree_columns(lanes, part)
        for n in range(v.size):
            error[n] = part[n] if start == 0 else error[n] + part[n]
    for n in range(v.size):
        error[n] = (v[n] - error[n]) * beta
    for start in range(0, k.size, SEGMENT):
        lanes[:] = np.float32(0)
        for i in range(start, min(start + SEGMENT, k.size)):
            row = state[i]
            lane = lanes[(i - start) % LANES]
            key, query = k[i], q[i]
            for n in range(v.size):
                row[n] = row[n] + key * error[n]
                lane[n] += row[n] * query
        tree_columns(lanes, part)
        for n in range(v.size):
            out[n] = part[n] if start == 0 else out[n] + part[n]


@compiled
def recur(
    qkv: Any,
    alpha: Any,
    beta: Any,
    decay: Any,
    bias: Any,
    state: Any,
    key_heads: int,
    scale: Any,
    spans: Any,
    out: Any,
) -> None:
    """As `gated_delta_rule`, on arrays."""
    heads, key_length, value_length = state.shape[1], state.shape[2], state.shape[3]
    lanes = np.empty(LANES, np.float32)
    columns = np.empty((LANES, value_length), np.float32)
    part = np.empty(value_length, np.float32)
    error = np.empty(value_length, np.float32)
    q = np.empty(key_length, np.float32)
    k = np.empty(key_length, np.float32)
    for s in range(spans.shape[0]):
        slot, first, count, certain = spans[s, 0], spans[s, 1], spans[s, 2], spans[s, 4]
        for head in range(heads):
            key_head = head % key_heads
            q_at = key_head * key_length
            k_at = (key_heads + key_head) * key_length
            v_at = 2 * key_heads * key_length + head * value_length
            current = state[slot, head]
            for i in range(count):
                if i == certain:
                    current = current.copy()
                r = first + i
                unit(qkv[r, q_at : q_at + key_length], scale, lanes, q)
                unit(qkv[r, k_at : k_at + key_length], np.float32(1), lanes, k)
                step(
                    current,
                    q,
                    k,
                    qkv[r, v_at : v_at + value_length],
                    exp(decay[head] * softplus(alpha[r, head] + bias[head])),
                    sigmoid(beta[r, head]),
                    columns,
                    part,
                    error,
                    out[r, head * value_length : (head + 1) * value_length],
                )


@compiled
def norm_and_gate(x: Any, gate: Any, weight: Any, eps: Any, use_silu: bool, out: Any) -> None:
    """As `gated_norm`, on arrays."""
    lanes = np.empty(LANES, np.float32)
    width = weight.size
    for r in range(x.shape[0]):
        for start in range(0, x.shape[1], width):
            part = x[r, start : start + width]
            factor = np.float32(1) / np.sqrt(dot(part, part, lanes) / np.float32(width) + eps)
            for i in range(width):
                g = gate[r, start + i]
                active = silu(g) if use_silu else sigmoid(g)
                out[r, start + i] = ((part[i] * factor) * weight[i]) * active
