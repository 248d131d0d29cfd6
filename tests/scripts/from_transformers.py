"""Carries the weights of a transformers model over to the training scripts' names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3_5MoeTextConfig, Qwen4ExpTextConfig
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeForCausalLM
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM

from scripts.train.geometry import Geometry

PLAIN = {
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "ple.key_proj.weight": "ple_key.weight",
    "ple.value_proj.weight": "ple_value.weight",
    "attn_hyper_connection.input_mix_weight_down.weight": "hc_attn_down.weight",
    "attn_hyper_connection.input_mix_weight_up.weight": "hc_attn_up.weight",
    "attn_hyper_connection.block_inject_weight.weight": "hc_attn_inject.weight",
    "mlp_hyper_connection.input_mix_weight_down.weight": "hc_ffn_down.weight",
    "mlp_hyper_connection.input_mix_weight_up.weight": "hc_ffn_up.weight",
    "mlp_hyper_connection.block_inject_weight.weight": "hc_ffn_inject.weight",
}
ONE_PLUS = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.indexer.q_layernorm.weight": "indexer.q_norm.weight",
    "self_attn.indexer.k_layernorm.weight": "indexer.k_norm.weight",
    "attn_hyper_connection.hc_norm.weight": "hc_attn_norm.weight",
    "mlp_hyper_connection.hc_norm.weight": "hc_ffn_norm.weight",
    "ple.norm_key.weight": "ple_norm_key.weight",
    "ple.norm_query.weight": "ple_norm_query.weight",
    "ple.norm_conv.weight": "ple_norm_conv.weight",
}
GLOBAL = {
    "model.embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "model.hyper_connection_mixer.input_mix_weight_down.weight": "output_hc_down.weight",
    "model.hyper_connection_mixer.input_mix_weight_up.weight": "output_hc_up.weight",
}
GLOBAL_ONE_PLUS = {
    "model.norm.weight": "output_norm.weight",
    "model.hyper_connection_mixer.hc_norm.weight": "output_hc_norm.weight",
}


def transformers_model(g: Geometry, seed: int) -> Any:
    """A float32 transformers model of the geometry with random weights, norms included."""
    kind = "indexed_attention" if g.wide else "full_attention"
    common: dict[str, Any] = {
        "vocab_size": g.vocab,
        "hidden_size": g.hidden,
        "num_hidden_layers": g.blocks,
        "num_attention_heads": g.heads,
        "num_key_value_heads": g.kv_heads,
        "head_dim": g.head_dim,
        "rms_norm_eps": g.eps,
        "linear_key_head_dim": g.ssm_state,
        "linear_value_head_dim": g.ssm_state,
        "linear_num_key_heads": g.ssm_key_heads,
        "linear_num_value_heads": g.ssm_value_heads,
        "moe_intermediate_size": g.expert_ff,
        "shared_expert_intermediate_size": g.shared_ff,
        "num_experts": g.experts,
        "num_experts_per_tok": g.experts_used,
        "layer_types": [kind if g.attends(i) else "linear_attention" for i in range(g.blocks)],
        "eos_token_id": g.ple_eos,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": g.rope_base,
            "partial_rotary_factor": g.rotary / g.head_dim,
            "mrope_section": g.rope_sections[:3],
            "mrope_interleaved": True,
        },
    }
    torch.manual_seed(seed)
    model: Any
    if g.wide:
        model = Qwen4ExpForCausalLM(Qwen4ExpTextConfig(**common, **_wide(g)))
    else:
        model = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**common))
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(0.0, 0.2 if "norm" in name or "conv1d" in name else 0.08)
    return model.eval()


def _wide(g: Geometry) -> dict[str, Any]:
    return {
        "hc_count": g.streams,
        "hc_lowrank": g.hc_rank,
        "ple_layer_ids": [g.ple_block + 1],
        "ple_embed_dim": (g.ngram - 1) * g.ple_heads * g.ple_width,
        "ngram_size": g.ngram,
        "heads_per_ngram": g.ple_heads,
        "ngram_vocab_size_base": g.ple_base,
        "split_ngram_parts": 1,
        "indexer_n_heads": g.index_heads,
        "indexer_kv_heads": 1,
        "indexer_head_dim": g.index_dim,
        "indexer_budget": g.index_budget,
        "indexer_compress_ratio": g.index_ratio,
        "output_gate_type": "sigmoid",
    }


def carried(model: Any, g: Geometry) -> dict[str, Tensor]:
    """The model's weights under GGUF names, in GGUF conventions."""
    found: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if name in GLOBAL:
            found[GLOBAL[name]] = value
        elif name in GLOBAL_ONE_PLUS:
            found[GLOBAL_ONE_PLUS[name]] = 1 + value
        elif name.endswith("ngram_embedding.weight"):
            found["per_layer_token_embd.weight"] = value
        elif name.startswith("model.layers."):
            number, rest = name.removeprefix("model.layers.").split(".", 1)
            for short, tensor in _of_block(rest, value, g).items():
                found[f"blk.{number}.{short}"] = tensor
    return found


def _of_block(name: str, value: Tensor, g: Geometry) -> dict[str, Tensor]:
    if name in PLAIN:
        return {PLAIN[name]: value}
    if name in ONE_PLUS:
        return {ONE_PLUS[name]: 1 + value}
    if name == "mlp.experts.gate_up_proj":
        gate, up = value.chunk(2, dim=1)
        return {"ffn_gate_exps.weight": gate, "ffn_up_exps.weight": up}
    if name == "mlp.shared_expert_gate.weight":
        return {"ffn_gate_inp_shexp.weight": value[0]}
    if name == "self_attn.indexer.index_qk_proj.weight":
        q, k = value.split([g.index_heads * g.index_dim, g.index_dim])
        return {"indexer.q_proj.weight": q, "indexer.k_proj.weight": k}
    if name == "ple.conv1d.weight":
        return {"ple_conv1d.weight": value.squeeze(1)}
    return _of_delta(name, value, g)


def _of_delta(name: str, value: Tensor, g: Geometry) -> dict[str, Tensor]:
    """GatedDeltaNet tensors; value heads go from grouped by key head to tiled."""
    keys, values, dim = g.ssm_key_heads, g.ssm_value_heads, g.ssm_state

    def tiled(x: Tensor, width: int) -> Tensor:
        grouped = x.unflatten(0, (keys, values // keys, width))
        return grouped.transpose(0, 1).flatten(0, 2)

    def tail(x: Tensor) -> Tensor:
        return torch.cat([x[: 2 * g.key_dim], tiled(x[2 * g.key_dim :], dim)])

    match name.removeprefix("linear_attn."):
        case "in_proj_qkv.weight":
            return {"attn_qkv.weight": tail(value)}
        case "conv1d.weight":
            return {"ssm_conv1d.weight": tail(value.squeeze(1))}
        case "in_proj_z.weight":
            return {"attn_gate.weight": tiled(value, dim)}
        case "in_proj_a.weight":
            return {"ssm_alpha.weight": tiled(value, 1)}
        case "in_proj_b.weight":
            return {"ssm_beta.weight": tiled(value, 1)}
        case "out_proj.weight":
            return {"ssm_out.weight": tiled(value.T, dim).T.contiguous()}
        case "A_log":
            return {"ssm_a": -tiled(value, 1).exp()}
        case "dt_bias":
            return {"ssm_dt.bias": tiled(value, 1)}
    return {}
