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

from engine.gguf.types import quant_type
from engine.gguf.writer import TensorData, write_gguf
from scripts.train.formats import types
from scripts.train.geometry import Geometry, strata_tiny, tiny_qwen35moe
from scripts.train.quantise import packed

TEMPLATE = Path(__file__).with_name("chat_template.jinja")
CONTROL, USER_DEFINED, NORMAL = 3, 4, 1


def metadata(geometry: Geometry, tokenizer: Mapping[str, Any], name: str) -> dict[str, Any]:
    """All keys of the file."""
    g = geometry
    found: dict[str, Any] = {
        "general.architecture": g.architecture,
        "general.type": "model",
        "general.name": name,
        "general.license": "mit",
        "general.file_type": 1024 if g.wide else 3,
        "general.quantization_version": 2,
    }
    plain = _shape_keys(g) | (_wide_keys(g) if g.wide else {})
    found |= {f"{g.architecture}.{key}": value for key, value in plain.items()}
    return found | _tokenizer_keys(tokenizer)


def _shape_keys(g: Geometry) -> dict[str, Any]:
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
    found: dict[str, Any] = dict(integers)
    found["attention.layer_norm_rms_epsilon"] = g.eps
    found["rope.dimension_sections"] = np.array(g.rope_sections, np.int32)
    found["rope.freq_base"] = g.rope_base
    return found


def _wide_keys(g: Geometry) -> dict[str, Any]:
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
    found: dict[str, Any] = dict(integers)
    found["attention.compress_ratios"] = np.array(g.compress_ratios(), np.int32)
    found["ple.layers"] = np.array([g.ple_block], np.int32)
    found["ple.layer_multipliers"] = np.array(g.ple_multipliers(), np.uint64)
    found["ple.head_offsets"] = np.array(g.ple_offsets(), np.uint64)
    found["ple.head_vocab_sizes"] = np.array(g.ple_sizes(), np.uint64)
    return found


def _tokenizer_keys(tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    ids: dict[str, int] = dict(tokenizer["model"]["vocab"])
    kinds = dict.fromkeys(ids.values(), NORMAL)
    for added in tokenizer["added_tokens"]:
        ids[added["content"]] = added["id"]
        kinds[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    ordered = sorted(ids, key=ids.__getitem__)
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": ordered,
        "tokenizer.ggml.token_type": np.array([kinds[ids[token]] for token in ordered], np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": ids["<|im_end|>"],
        "tokenizer.ggml.padding_token_id": ids["<|endoftext|>"],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE.read_text(encoding="utf-8"),
    }


def tensors(weights: Mapping[str, Tensor], geometry: Geometry) -> dict[str, TensorData]:
    """Packed bytes of every tensor, rounded on the CPU."""
    chosen = types(weights, geometry)
    return {
        name: (
            quant_type(chosen[name]),
            tuple(value.shape),
            packed(value.float().cpu(), chosen[name]),
        )
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
