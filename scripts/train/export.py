"""Writes trained weights as a GGUF file.

python -m scripts.train.export WEIGHTS.npz TOKENIZER.json OUT.gguf --model strata-tiny
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scripts.train.formats import types
from scripts.train.geometry import Geometry, strata_tiny, tiny_qwen35moe
from scripts.train.gguf_file import Packed, Value, write_gguf
from scripts.train.quantise import packed

TEMPLATE = Path(__file__).with_name("chat_template.jinja")
CONTROL, USER_DEFINED, NORMAL = 3, 4, 1


def metadata(geometry: Geometry, tokenizer: Mapping[str, Any], name: str) -> dict[str, Value]:
    """All keys of the file."""
    g = geometry
    found: dict[str, Value] = {
        "general.architecture": ("str", g.architecture),
        "general.type": ("str", "model"),
        "general.name": ("str", name),
        "general.license": ("str", "mit"),
        "general.file_type": ("u32", 1024 if g.wide else 3),
        "general.quantization_version": ("u32", 2),
    }
    plain = _shape_keys(g) | (_wide_keys(g) if g.wide else {})
    found |= {f"{g.architecture}.{key}": value for key, value in plain.items()}
    return found | _tokenizer_keys(tokenizer)


def _shape_keys(g: Geometry) -> dict[str, Value]:
    integers = {
        "block_count": g.blocks + 1,
        "nextn_predict_layers": 1,
        "context_length": g.context,
        "embedding_length": g.hidden,
        "attention.head_count": g.heads,
        "attention.head_count_kv": g.kv_heads,
        "attention.key_length": g.head_dim,
        "attention.value_length": g.head_dim,
        "rope.dimension_count": g.rotary,
        "full_attention_interval": g.interval,
        "expert_count": g.experts,
        "expert_used_count": g.experts_used,
        "expert_feed_forward_length": g.expert_ff,
        "expert_shared_feed_forward_length": g.shared_ff,
        "ssm.conv_kernel": g.conv,
        "ssm.state_size": g.ssm_state,
        "ssm.group_count": g.ssm_key_heads,
        "ssm.time_step_rank": g.ssm_value_heads,
        "ssm.inner_size": g.value_dim,
    }
    found: dict[str, Value] = {key: ("u32", value) for key, value in integers.items()}
    found["attention.layer_norm_rms_epsilon"] = ("f32", g.eps)
    found["rope.dimension_sections"] = ("i32", g.rope_sections)
    found["rope.freq_base"] = ("f32", g.rope_base)
    return found


def _wide_keys(g: Geometry) -> dict[str, Value]:
    integers = {
        "hyper_connection.count": g.streams,
        "hyper_connection.low_rank": g.hc_rank,
        "attention.indexer.head_count": g.index_heads,
        "attention.indexer.key_length": g.index_dim,
        "attention.indexer.top_k": g.index_budget,
        "ple.ngram_size": g.ngram,
        "ple.heads_per_ngram": g.ple_heads,
        "ple.conv_kernel": g.conv,
        "ple.eos_token_id": g.ple_eos,
        "embedding_length_per_layer_input": g.ple_width,
    }
    found: dict[str, Value] = {key: ("u32", value) for key, value in integers.items()}
    found["attention.compress_ratios"] = ("i32", g.compress_ratios())
    found["ple.layers"] = ("i32", [g.ple_block])
    found["ple.layer_multipliers"] = ("u64", g.ple_multipliers())
    found["ple.head_offsets"] = ("u64", g.ple_offsets())
    found["ple.head_vocab_sizes"] = ("u64", g.ple_sizes())
    return found


def _tokenizer_keys(tokenizer: Mapping[str, Any]) -> dict[str, Value]:
    ids: dict[str, int] = dict(tokenizer["model"]["vocab"])
    kinds = dict.fromkeys(ids.values(), NORMAL)
    for added in tokenizer["added_tokens"]:
        ids[added["content"]] = added["id"]
        kinds[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    ordered = sorted(ids, key=ids.__getitem__)
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    return {
        "tokenizer.ggml.model": ("str", "gpt2"),
        "tokenizer.ggml.pre": ("str", "qwen35"),
        "tokenizer.ggml.tokens": ("str", ordered),
        "tokenizer.ggml.token_type": ("i32", [kinds[ids[token]] for token in ordered]),
        "tokenizer.ggml.merges": ("str", merges),
        "tokenizer.ggml.eos_token_id": ("u32", ids["<|im_end|>"]),
        "tokenizer.ggml.padding_token_id": ("u32", ids["<|endoftext|>"]),
        "tokenizer.ggml.add_bos_token": ("bool", False),
        "tokenizer.chat_template": ("str", TEMPLATE.read_text(encoding="utf-8")),
    }


def tensors(weights: Mapping[str, Tensor], geometry: Geometry) -> dict[str, Packed]:
    """Packed bytes of every tensor, rounded on the CPU."""
    chosen = types(weights, geometry)
    return {
        name: (chosen[name], tuple(value.shape), packed(value.float().cpu(), chosen[name]))
        for name, value in weights.items()
    }


def export(
    weights: Mapping[str, Tensor], geometry: Geometry, tokenizer: Path, out: Path, name: str
) -> None:
    """Writes the file `out`."""
    keys = metadata(geometry, json.loads(tokenizer.read_text(encoding="utf-8")), name)
    write_gguf(out, keys, tensors(weights, geometry))


def named_geometry(model: str, tokenizer: Path) -> Geometry:
    """The geometry of `strata-tiny` or `tiny-qwen35moe` for a vocabulary."""
    added = json.loads(tokenizer.read_text(encoding="utf-8"))["added_tokens"]
    ids = {token["content"]: token["id"] for token in added}
    vocab = max(ids.values()) + 1
    if model == "strata-tiny":
        return strata_tiny(vocab, ids["<|endoftext|>"])
    return tiny_qwen35moe(vocab)


def main() -> None:
    """Exports saved weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("weights", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", choices=("strata-tiny", "tiny-qwen35moe"), required=True)
    arguments = parser.parse_args()
    with np.load(arguments.weights) as arrays:
        weights = {name: torch.from_numpy(arrays[name]).float() for name in arrays.files}
    geometry = named_geometry(arguments.model, arguments.tokenizer)
    export(weights, geometry, arguments.tokenizer, arguments.out, arguments.model)
    print(f"{arguments.out}: {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
