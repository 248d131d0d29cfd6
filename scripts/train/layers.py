"""The layers as plain functions of a block's tensors, named as in the GGUF file.

Matrices may be bfloat16, everything else and all activations between layers are float32.
x: [B, T, D]. Norm gammas are stored as they multiply (1 + w of the original format).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as fn
from torch import Tensor

from scripts.train.delta import gated_delta
from scripts.train.geometry import Geometry

Weights = Mapping[str, Tensor]


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x [..., K] times weight [N, K] in the weight's precision; float32 out."""
    return fn.linear(x.to(weight.dtype), weight).float()


def rms(x: Tensor, gamma: Tensor, eps: float) -> Tensor:
    """Normalises the last axis by its root mean square, then multiplies by gamma."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gamma


def rotate(x: Tensor, positions: Tensor, geometry: Geometry) -> Tensor:
    """Half-split rotary embedding of the first `rotary` dims; x [B, T, H, d], positions [T]."""
    half = geometry.rotary // 2
    exponents = torch.arange(half, device=x.device, dtype=torch.float32) / half
    angles = positions.float().unsqueeze(-1) * geometry.rope_base**-exponents
    cos, sin = angles.cos().unsqueeze(-2), angles.sin().unsqueeze(-2)
    a, b, rest = x.split([half, half, x.shape[-1] - 2 * half], dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)


def depthwise(x: Tensor, taps: Tensor, dilation: int = 1) -> Tensor:
    """Causal depthwise convolution of x [B, T, C] with taps [C, K]; tap K-1 meets the token."""
    count = taps.shape[-1]
    padded = fn.pad(x, (0, 0, (count - 1) * dilation, 0))
    length = x.shape[1]
    parts = [padded[:, j * dilation : j * dilation + length] * taps[:, j] for j in range(count)]
    return torch.stack(parts).sum(0)


def delta_mixer(x: Tensor, w: Weights, geometry: Geometry) -> Tensor:
    """GatedDeltaNet with tiled value heads: value head j uses key head j % key heads."""
    heads, dim = geometry.ssm_value_heads, geometry.ssm_state
    mixed = fn.silu(depthwise(linear(x, w["attn_qkv.weight"]), w["ssm_conv1d.weight"]))
    q, k, v = mixed.split([geometry.key_dim, geometry.key_dim, geometry.value_dim], dim=-1)
    tiles = heads // geometry.ssm_key_heads
    q = _unit(q.unflatten(-1, (-1, dim))).repeat(1, 1, tiles, 1) * dim**-0.5
    k = _unit(k.unflatten(-1, (-1, dim))).repeat(1, 1, tiles, 1)
    beta = torch.sigmoid(linear(x, w["ssm_beta.weight"]))
    step = fn.softplus(linear(x, w["ssm_alpha.weight"]) + w["ssm_dt.bias"])
    out = gated_delta(q, k, v.unflatten(-1, (-1, dim)), w["ssm_a"] * step, beta)
    gate = linear(x, w["attn_gate.weight"]).unflatten(-1, (-1, dim))
    gate = torch.sigmoid(gate) if geometry.wide else fn.silu(gate)
    out = rms(out, w["ssm_norm.weight"], geometry.eps) * gate
    return linear(out.flatten(-2), w["ssm_out.weight"])


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def attention_inputs(
    x: Tensor, w: Weights, geometry: Geometry
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rotated q and k, v (each [B, heads, T, d], k and v repeated for their heads) and the gate."""
    dim, eps = geometry.head_dim, geometry.eps
    both = linear(x, w["attn_q.weight"]).unflatten(-1, (geometry.heads, 2 * dim))
    q, gate = both.split([dim, dim], dim=-1)
    k = linear(x, w["attn_k.weight"]).unflatten(-1, (-1, dim))
    v = linear(x, w["attn_v.weight"]).unflatten(-1, (-1, dim))
    positions = torch.arange(x.shape[1], device=x.device)
    q = rotate(rms(q, w["attn_q_norm.weight"], eps), positions, geometry)
    k = rotate(rms(k, w["attn_k_norm.weight"], eps), positions, geometry)
    repeats = geometry.heads // geometry.kv_heads
    k, v = (t.repeat_interleave(repeats, dim=2) for t in (k, v))
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), gate.flatten(-2)


def attend(
    q: Tensor, k: Tensor, v: Tensor, gate: Tensor, w: Weights, mask: Tensor | None
) -> Tensor:
    """Gated attention; causal where `mask` ([B, 1, T, T] bool) is None."""
    dtype = w["attn_output.weight"].dtype
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    out = fn.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    out = out.transpose(1, 2).flatten(-2).float() * torch.sigmoid(gate)
    return linear(out, w["attn_output.weight"])


def experts(x: Tensor, w: Weights, geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Mixture of experts with the shared expert, and the router's load-balance loss.

    Every expert runs on every token: at these widths that is faster than sorting tokens.
    """
    scores = torch.softmax(linear(x, w["ffn_gate_inp.weight"]), dim=-1)
    best = scores.topk(geometry.experts_used, dim=-1)
    weights = best.values / best.values.sum(-1, keepdim=True)
    routed = torch.zeros_like(scores).scatter(-1, best.indices, weights)
    used = (routed > 0).float().flatten(0, -2).mean(0) / geometry.experts_used
    balance = geometry.experts * (used * scores.flatten(0, -2).mean(0)).sum()
    up, down = w["ffn_up_exps.weight"], w["ffn_down_exps.weight"]
    flat = x.to(up.dtype).flatten(0, -2)
    inner = fn.silu(flat @ w["ffn_gate_exps.weight"].mT) * (flat @ up.mT)
    inner = inner * routed.to(up.dtype).flatten(0, -2).T.unsqueeze(-1)
    out = inner.transpose(0, 1).flatten(1) @ down.transpose(0, 1).flatten(1).T
    shared = fn.silu(linear(x, w["ffn_gate_shexp.weight"])) * linear(x, w["ffn_up_shexp.weight"])
    switch = torch.sigmoid(linear(x, w["ffn_gate_inp_shexp.weight"].unsqueeze(0)))
    return out.float().view_as(x) + switch * linear(shared, w["ffn_down_shexp.weight"]), balance


def read_streams(
    streams: Tensor, w: Weights, name: str, geometry: Geometry
) -> tuple[Tensor, Tensor | None]:
    """Block input [B, T, D] and, where the module has them, inject weights [B, T, S]."""
    count = geometry.streams
    gamma = w[f"{name}_norm.weight"].view(count, -1)
    normed = rms(streams, gamma, geometry.eps)
    flat = normed.flatten(-2)
    low = fn.silu(linear(flat, w[f"{name}_down.weight"]) / count)
    mix = torch.sigmoid(linear(low, w[f"{name}_up.weight"])).unflatten(-1, (count, -1))
    mixed = (mix * normed).mean(-2)
    if f"{name}_inject.weight" not in w:
        return mixed, None
    return mixed, 2 * torch.sigmoid(linear(flat, w[f"{name}_inject.weight"]) / count)


def per_layer(streams: Tensor, rows: Tensor, w: Weights, geometry: Geometry) -> Tensor:
    """What the n-gram embeddings [B, T, E] add to the streams [B, T, S, D]."""
    count, eps = geometry.streams, geometry.eps
    key = linear(rows, w["ple_key.weight"]).unflatten(-1, (count, -1))
    key = rms(key, w["ple_norm_key.weight"].view(count, -1), eps)
    query = rms(streams, w["ple_norm_query.weight"].view(count, -1), eps)
    score = (key * query).sum(-1, keepdim=True) / geometry.hidden**0.5
    gate = torch.sigmoid(score.sign() * score.abs().clamp_min(1e-6).sqrt())
    value = gate * linear(rows, w["ple_value.weight"]).unsqueeze(-2)
    normed = rms(value, w["ple_norm_conv.weight"].view(count, -1), eps).flatten(-2)
    conv = depthwise(normed, w["ple_conv1d.weight"], geometry.ngram)
    return value + fn.silu(conv).unflatten(-1, (count, -1))
