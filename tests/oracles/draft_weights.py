"""Random weights of a draft (MTP) block, under the GGUF names and shapes of both families."""

import numpy as np

from tests.oracles.convert import Tensors
from tests.oracles.shape import VOCABULARY, Shape


def draft_tensors(
    shape: Shape, *, own_head: bool = False, own_norm: bool = True, seed: int = 77
) -> Tensors:
    """Float32 tensors of block `len(shape.layers)`.

    `own_head` adds the optional embedding and head of the block; `own_norm` (qwen35moe) the
    optional final norm.
    """
    chooser = np.random.default_rng(seed + shape.seed)
    names = _attention_block(shape) | _experts(shape)
    names |= _qwen4exp(shape) if shape.family == "qwen4exp" else _qwen35moe(shape, own_norm)
    if own_head:
        names["nextn.embed_tokens.weight"] = (VOCABULARY, shape.hidden)
        names["nextn.shared_head_head.weight"] = (VOCABULARY, shape.hidden)
    prefix = f"blk.{len(shape.layers)}."
    tensors = {}
    for name, size in names.items():
        if len(size) == 1 and "norm" in name:
            draw = chooser.uniform(0.5, 1.5, size)
        else:
            draw = chooser.standard_normal(size) * (1.0 if "embed" in name else size[-1] ** -0.5)
        tensors[prefix + name] = _stored(draw.astype(np.float32), name, shape.storage)
    return tensors


def _stored(weight: np.ndarray, name: str, storage: str) -> np.ndarray:
    """fp16 values where the file will hold fp16."""
    if storage != "f16" or weight.ndim < 2 or "ffn_gate_inp" in name:
        return weight
    return weight.astype(np.float16).astype(np.float32)


def _attention_block(shape: Shape) -> dict[str, tuple[int, ...]]:
    wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "attn_q.weight": (2 * wide, shape.hidden),
        "attn_k.weight": (narrow, shape.hidden),
        "attn_v.weight": (narrow, shape.hidden),
        "attn_output.weight": (shape.hidden, wide),
        "attn_q_norm.weight": (shape.head_dim,),
        "attn_k_norm.weight": (shape.head_dim,),
    }


def _experts(shape: Shape) -> dict[str, tuple[int, ...]]:
    hidden, width, shared = shape.hidden, shape.expert_ff, shape.shared_ff
    return {
        "ffn_gate_inp.weight": (shape.experts, hidden),
        "ffn_gate_exps.weight": (shape.experts, width, hidden),
        "ffn_up_exps.weight": (shape.experts, width, hidden),
        "ffn_down_exps.weight": (shape.experts, hidden, width),
        "ffn_gate_shexp.weight": (shared, hidden),
        "ffn_up_shexp.weight": (shared, hidden),
        "ffn_down_shexp.weight": (hidden, shared),
        "ffn_gate_inp_shexp.weight": (1, hidden) if shape.gate_shape == "1xD" else (hidden,),
    }


def _qwen4exp(shape: Shape) -> dict[str, tuple[int, ...]]:
    all_streams = shape.streams * shape.hidden
    names: dict[str, tuple[int, ...]] = {
        "indexer.q_proj.weight": (shape.indexer_heads * shape.indexer_dim, shape.hidden),
        "indexer.k_proj.weight": (shape.indexer_dim, shape.hidden),
        "indexer.q_norm.weight": (shape.indexer_dim,),
        "indexer.k_norm.weight": (shape.indexer_dim,),
        "nextn.enorm.weight": (shape.hidden,),
        "nextn.hnorm.weight": (all_streams,),
        "nextn.eh_proj.weight": (shape.hidden, 2 * shape.hidden),
    }
    for mixer in ("hc_attn_", "hc_ffn_", "nextn.hc_head_"):
        names[mixer + "norm.weight"] = (all_streams,)
        names[mixer + "down.weight"] = (shape.lowrank, all_streams)
        names[mixer + "up.weight"] = (all_streams, shape.lowrank)
    for mixer in ("hc_attn_", "hc_ffn_"):
        names[mixer + "inject.weight"] = (shape.streams, all_streams)
    return names


def _qwen35moe(shape: Shape, own_norm: bool) -> dict[str, tuple[int, ...]]:
    names: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (shape.hidden,),
        "post_attention_norm.weight": (shape.hidden,),
        "nextn.enorm.weight": (shape.hidden,),
        "nextn.hnorm.weight": (shape.hidden,),
        "nextn.eh_proj.weight": (shape.hidden, 2 * shape.hidden),
    }
    if own_norm:
        names["nextn.shared_head_norm.weight"] = (shape.hidden,)
    return names
