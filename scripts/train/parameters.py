"""Names, shapes and first values of a model's tensors (numpy order, slowest axis first)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scripts.train.geometry import Geometry

Shape = tuple[int, ...]
NORMS = (
    "norm.weight",
    "ple_norm_key.weight",
    "ple_norm_query.weight",
    "ple_norm_conv.weight",
)


def shapes(geometry: Geometry) -> dict[str, Shape]:
    """Every tensor of the GGUF file, by name."""
    g = geometry
    found: dict[str, Shape] = {"token_embd.weight": (g.vocab, g.hidden)}
    if g.wide:
        found["per_layer_token_embd.weight"] = (g.ple_rows(), g.ple_width)
        found |= _streams("output_hc", g, inject=False)
    else:
        found["output_norm.weight"] = (g.hidden,)
    found["output.weight"] = (g.vocab, g.hidden)
    for number in range(g.blocks + 1):
        found |= {f"blk.{number}.{name}": shape for name, shape in _block(g, number).items()}
    return found


def initial(geometry: Geometry, seed: int, device: str = "cpu") -> dict[str, Tensor]:
    """Float32 tensors to start training from; the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: _first_value(name, shape, generator).to(device)
        for name, shape in shapes(geometry).items()
    }


def _block(g: Geometry, number: int) -> dict[str, Shape]:
    found = _attention(g, number) if g.attends(number) else _delta(g)
    found |= {
        "ffn_gate_inp.weight": (g.experts, g.hidden),
        "ffn_gate_exps.weight": (g.experts, g.expert_ff, g.hidden),
        "ffn_up_exps.weight": (g.experts, g.expert_ff, g.hidden),
        "ffn_down_exps.weight": (g.experts, g.hidden, g.expert_ff),
        "ffn_gate_inp_shexp.weight": (g.hidden,),
        "ffn_gate_shexp.weight": (g.shared_ff, g.hidden),
        "ffn_up_shexp.weight": (g.shared_ff, g.hidden),
        "ffn_down_shexp.weight": (g.hidden, g.shared_ff),
    }
    if g.wide:
        found |= _streams("hc_attn", g) | _streams("hc_ffn", g)
    else:
        found |= {"attn_norm.weight": (g.hidden,), "post_attention_norm.weight": (g.hidden,)}
    if g.wide and number == g.ple_block:
        found |= _per_layer(g)
    if number == g.blocks:
        found |= _draft(g)
    return found


def _streams(name: str, g: Geometry, inject: bool = True) -> dict[str, Shape]:
    wide = g.streams * g.hidden
    found: dict[str, Shape] = {
        f"{name}_norm.weight": (wide,),
        f"{name}_down.weight": (g.hc_rank, wide),
        f"{name}_up.weight": (wide, g.hc_rank),
    }
    return found | ({f"{name}_inject.weight": (g.streams, wide)} if inject else {})


def _delta(g: Geometry) -> dict[str, Shape]:
    channels, heads = 2 * g.key_dim + g.value_dim, g.ssm_value_heads
    return {
        "attn_qkv.weight": (channels, g.hidden),
        "attn_gate.weight": (g.value_dim, g.hidden),
        "ssm_alpha.weight": (heads, g.hidden),
        "ssm_beta.weight": (heads, g.hidden),
        "ssm_a": (heads,),
        "ssm_dt.bias": (heads,),
        "ssm_conv1d.weight": (channels, g.conv),
        "ssm_norm.weight": (g.ssm_state,),
        "ssm_out.weight": (g.hidden, g.value_dim),
    }


def _attention(g: Geometry, number: int) -> dict[str, Shape]:
    found: dict[str, Shape] = {
        "attn_q.weight": (2 * g.heads * g.head_dim, g.hidden),
        "attn_k.weight": (g.kv_heads * g.head_dim, g.hidden),
        "attn_v.weight": (g.kv_heads * g.head_dim, g.hidden),
        "attn_output.weight": (g.hidden, g.heads * g.head_dim),
        "attn_q_norm.weight": (g.head_dim,),
        "attn_k_norm.weight": (g.head_dim,),
    }
    if g.wide:
        found |= {
            "indexer.q_proj.weight": (g.index_heads * g.index_dim, g.hidden),
            "indexer.k_proj.weight": (g.index_dim, g.hidden),
            "indexer.q_norm.weight": (g.index_dim,),
            "indexer.k_norm.weight": (g.index_dim,),
        }
    return found


def _per_layer(g: Geometry) -> dict[str, Shape]:
    wide, width = g.streams * g.hidden, (g.ngram - 1) * g.ple_heads * g.ple_width
    return {
        "ple_key.weight": (wide, width),
        "ple_value.weight": (g.hidden, width),
        "ple_norm_key.weight": (wide,),
        "ple_norm_query.weight": (wide,),
        "ple_norm_conv.weight": (wide,),
        "ple_conv1d.weight": (wide, g.conv),
    }


def _draft(g: Geometry) -> dict[str, Shape]:
    found: dict[str, Shape] = {
        "nextn.eh_proj.weight": (g.hidden, 2 * g.hidden),
        "nextn.enorm.weight": (g.hidden,),
    }
    if g.wide:
        found["nextn.hnorm.weight"] = (g.streams * g.hidden,)
        return found | _streams("nextn.hc_head", g, inject=False)
    return found | {
        "nextn.hnorm.weight": (g.hidden,),
        "nextn.shared_head_norm.weight": (g.hidden,),
    }


def _first_value(name: str, shape: Shape, generator: torch.Generator) -> Tensor:
    """Ones for norms, small outputs, spread decays; fan-in scaled normals for the rest."""
    if name.endswith(NORMS):
        return torch.ones(shape)
    if name.endswith("ssm_a"):
        return -torch.linspace(1.0, 8.0, shape[0])
    if name.endswith("ssm_dt.bias"):
        return torch.linspace(-4.0, -2.0, shape[0])
    noise = torch.randn(shape, generator=generator)
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return noise * (0.3 if name.startswith("token") else 0.02)  # rare n-grams stay quiet
    if name.endswith("conv1d.weight"):
        noise *= 0.1
        if "ssm" in name:
            noise[:, -1] += 0.5
        return noise
    small = ("_down_exps.weight", "_down_shexp.weight", "attn_output.weight", "ssm_out.weight")
    scale = 0.3 if name.endswith((*small, "_inp.weight", "_up.weight", "_inject.weight")) else 0.7
    return noise * scale / math.sqrt(shape[-1])
