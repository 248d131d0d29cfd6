"""Writes a transformers text model as a GGUF file, with a draft (MTP) block when asked.

Names, metadata keys and what conversion changes follow the published files of both families:
norm weights are stored as 1 + w, decay as -exp(A_log), value heads in tiled order (value head j
pairs with key head j % key_heads), convolution taps without their middle axis, fused projections
split, n-gram tables as one tensor and the n-gram hash constants as metadata.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from torch import nn

from tests.oracles.shape import VOCABULARY, Shape

FIXTURES = Path(__file__).parents[1] / "fixtures"

Tensors = dict[str, np.ndarray]

_SCALAR = {bool: GGUFValueType.BOOL, int: GGUFValueType.UINT32, float: GGUFValueType.FLOAT32}


def write_model(path: Path, shape: Shape, model: nn.Module, draft: Tensors | None = None) -> Path:
    """Write the trunk, and `draft` (from `tests.oracles.draft_weights`) as the last block."""
    tensors = dict(trunk_tensors(shape, model)) | (draft or {})
    return _write(path, shape, metadata(shape, model, draft is not None), tensors)


def write_draft(path: Path, shape: Shape, model: nn.Module, draft: Tensors) -> Path:
    """Write a second file: the same metadata and only the draft block's tensors."""
    return _write(path, shape, metadata(shape, model, True), draft)


def metadata(shape: Shape, model: nn.Module, has_draft: bool) -> dict[str, object]:
    """Keys without the architecture prefix; lists hold i32, bools or, for hashes, u64."""
    third = shape.rotary // 2 // 3
    keys: dict[str, object] = {
        "block_count": len(shape.layers) + has_draft,
        "context_length": 4096,
        "embedding_length": shape.hidden,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": shape.eps,
        "rope.dimension_count": shape.rotary,
        "rope.dimension_sections": [shape.rotary // 2 - 2 * third, third, third, 0],
        "rope.freq_base": shape.theta,
        "expert_count": shape.experts,
        "expert_used_count": shape.experts_used,
        "expert_feed_forward_length": shape.expert_ff,
        "expert_shared_feed_forward_length": shape.shared_ff,
        "ssm.conv_kernel": shape.conv_kernel,
        "ssm.state_size": shape.key_dim,
        "ssm.group_count": shape.key_heads,
        "ssm.time_step_rank": shape.value_heads,
        "ssm.inner_size": shape.value_heads * shape.value_dim,
    }
    if has_draft:
        keys["nextn_predict_layers"] = 1
    keys |= _layer_pattern(shape, has_draft)
    if shape.family == "qwen4exp":
        keys |= _qwen4exp_keys(shape, has_draft) | _ngram_keys(shape, model)
    return keys


def _layer_pattern(shape: Shape, has_draft: bool) -> dict[str, object]:
    """A plain interval where the pattern has one, the explicit list where it is irregular."""
    recurrent = [letter == "g" for letter in shape.layers]
    for interval in range(1, len(recurrent) + 1):
        if recurrent == [(i + 1) % interval != 0 for i in range(len(recurrent))]:
            return {"full_attention_interval": interval}
    return {"attention.recurrent_layers": recurrent + [False] * has_draft}


def _qwen4exp_keys(shape: Shape, has_draft: bool) -> dict[str, object]:
    keys: dict[str, object] = {
        "hyper_connection.count": shape.streams,
        "hyper_connection.low_rank": shape.lowrank,
        "attention.indexer.head_count": shape.indexer_heads,
        "attention.indexer.key_length": shape.indexer_dim,
        "attention.indexer.top_k": shape.budget,
    }
    if shape.write_ratios:
        ratios = [shape.ratio(block) for block in range(len(shape.layers))]
        keys["attention.compress_ratios"] = ratios + [shape.draft_ratio] * has_draft
    return keys


def _ngram_keys(shape: Shape, model: nn.Module) -> dict[str, object]:
    if shape.ple_block is None:
        return {}
    table = model.model.layers[shape.ple_block].ple.ple_embedding
    return {
        "ple.layers": [shape.ple_block],
        "ple.ngram_size": shape.ngram_size,
        "ple.heads_per_ngram": shape.heads_per_ngram,
        "ple.conv_kernel": shape.ple_kernel,
        "ple.eos_token_id": shape.eos,
        "ple.layer_multipliers": table.layer_multipliers.tolist(),
        "ple.head_offsets": table.ngram_heads_offsets.tolist(),
        "ple.head_vocab_sizes": table.ngram_heads_vocab_sizes.tolist(),
        "embedding_length_per_layer_input": table.ngram_embedding.weight.shape[1],
    }


def trunk_tensors(shape: Shape, model: nn.Module) -> Iterator[tuple[str, np.ndarray]]:
    """GGUF name and float32 array (numpy order, slowest axis first) of every trunk tensor."""
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    yield "token_embd.weight", state["model.embed_tokens.weight"]
    if not shape.tied:
        yield "output.weight", state["lm_head.weight"]
    if shape.family == "qwen4exp":
        yield from _hyper_connection(state, "model.hyper_connection_mixer.", "output_hc_")
    else:
        yield "output_norm.weight", 1 + state["model.norm.weight"]
    for block, letter in enumerate(shape.layers):
        source, target = f"model.layers.{block}.", f"blk.{block}."
        yield from (
            _delta_net(state, source, target, shape)
            if letter == "g"
            else _attention(state, source, target, shape)
        )
        yield from _experts(state, source, target, shape)
        yield from _residual(state, source, target, shape)
        if block == shape.ple_block:
            yield from _ngram(state, source, target)


State = Mapping[str, np.ndarray]
Pairs = Iterator[tuple[str, np.ndarray]]


def _hyper_connection(state: State, source: str, target: str) -> Pairs:
    yield target + "norm.weight", 1 + state[source + "hc_norm.weight"]
    yield target + "down.weight", state[source + "input_mix_weight_down.weight"]
    yield target + "up.weight", state[source + "input_mix_weight_up.weight"]
    if source + "block_inject_weight.weight" in state:
        yield target + "inject.weight", state[source + "block_inject_weight.weight"]


def _residual(state: State, source: str, target: str, shape: Shape) -> Pairs:
    if shape.family == "qwen4exp":
        yield from _hyper_connection(state, source + "attn_hyper_connection.", target + "hc_attn_")
        yield from _hyper_connection(state, source + "mlp_hyper_connection.", target + "hc_ffn_")
        return
    yield target + "attn_norm.weight", 1 + state[source + "input_layernorm.weight"]
    name = "post_attention_layernorm.weight"
    yield target + "post_attention_norm.weight", 1 + state[source + name]


def _experts(state: State, source: str, target: str, shape: Shape) -> Pairs:
    source += "mlp."
    fused = state[source + "experts.gate_up_proj"]
    yield target + "ffn_gate_inp.weight", state[source + "gate.weight"]
    yield target + "ffn_gate_exps.weight", fused[:, : shape.expert_ff]
    yield target + "ffn_up_exps.weight", fused[:, shape.expert_ff :]
    yield target + "ffn_down_exps.weight", state[source + "experts.down_proj"]
    for part in ("gate", "up", "down"):
        yield (
            target + f"ffn_{part}_shexp.weight",
            state[source + f"shared_expert.{part}_proj.weight"],
        )
    gate = state[source + "shared_expert_gate.weight"]
    yield target + "ffn_gate_inp_shexp.weight", gate if shape.gate_shape == "1xD" else gate[0]


def _attention(state: State, source: str, target: str, shape: Shape) -> Pairs:
    source += "self_attn."
    for ours, theirs in (("q", "q"), ("k", "k"), ("v", "v"), ("output", "o")):
        yield target + f"attn_{ours}.weight", state[source + f"{theirs}_proj.weight"]
    for part in ("q", "k"):
        yield target + f"attn_{part}_norm.weight", 1 + state[source + f"{part}_norm.weight"]
    if shape.family == "qwen35moe":
        return
    fused = state[source + "indexer.index_qk_proj.weight"]
    query_rows = shape.indexer_heads * shape.indexer_dim
    yield target + "indexer.q_proj.weight", fused[:query_rows]
    yield target + "indexer.k_proj.weight", fused[query_rows:]
    for part in ("q", "k"):
        name = f"indexer.{part}_layernorm.weight"
        yield target + f"indexer.{part}_norm.weight", 1 + state[source + name]


def _delta_net(state: State, source: str, target: str, shape: Shape) -> Pairs:
    source += "linear_attn."
    keys = 2 * shape.key_heads * shape.key_dim

    def tiled(rows: np.ndarray, width: int) -> np.ndarray:
        """Rows grouped by key head -> rows where value head j belongs to key head j % heads."""
        grouped = rows.reshape(shape.key_heads, -1, width, *rows.shape[1:])
        return grouped.swapaxes(0, 1).reshape(rows.shape)

    def tiled_values(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows[:keys], tiled(rows[keys:], shape.value_dim)])

    yield target + "attn_qkv.weight", tiled_values(state[source + "in_proj_qkv.weight"])
    yield target + "attn_gate.weight", tiled(state[source + "in_proj_z.weight"], shape.value_dim)
    yield target + "ssm_alpha.weight", tiled(state[source + "in_proj_a.weight"], 1)
    yield target + "ssm_beta.weight", tiled(state[source + "in_proj_b.weight"], 1)
    yield target + "ssm_a", tiled(-np.exp(state[source + "A_log"]), 1)
    yield target + "ssm_dt.bias", tiled(state[source + "dt_bias"], 1)
    yield target + "ssm_conv1d.weight", tiled_values(state[source + "conv1d.weight"][:, 0])
    yield target + "ssm_norm.weight", state[source + "norm.weight"]
    yield target + "ssm_out.weight", tiled(state[source + "out_proj.weight"].T, shape.value_dim).T


def _ngram(state: State, source: str, target: str) -> Pairs:
    source += "ple."
    yield target + "ple_key.weight", state[source + "key_proj.weight"]
    yield target + "ple_value.weight", state[source + "value_proj.weight"]
    for part in ("key", "query", "conv"):
        yield target + f"ple_norm_{part}.weight", 1 + state[source + f"norm_{part}.weight"]
    yield target + "ple_conv1d.weight", state[source + "conv1d.weight"][:, 0]
    yield "per_layer_token_embd.weight", state[source + "ple_embedding.ngram_embedding.weight"]


def _write(path: Path, shape: Shape, keys: dict[str, object], tensors: Tensors) -> Path:
    writer = GGUFWriter(path, shape.family)
    writer.add_name(shape.name)
    for key, value in keys.items():
        _add(writer, f"{shape.family}.{key}", value)
    _add_tokenizer(writer)
    for name, tensor in tensors.items():
        kind = _storage(name, tensor, shape.storage)
        data = gguf.quants.quantize(np.ascontiguousarray(tensor, dtype=np.float32), kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _storage(name: str, tensor: np.ndarray, storage: str) -> GGMLQuantizationType:
    small = tensor.ndim < 2 or name.endswith(
        ("ffn_gate_inp.weight", "ssm_conv1d.weight", "ffn_gate_inp_shexp.weight")
    )
    if small or storage == "f32":
        return GGMLQuantizationType.F32
    return GGMLQuantizationType.F16 if storage == "f16" else GGMLQuantizationType.BF16


def _add(writer: GGUFWriter, key: str, value: object) -> None:
    if not isinstance(value, list):
        writer.add_key_value(key, value, _SCALAR[type(value)])
        return
    if isinstance(value[0], bool):
        kind = GGUFValueType.BOOL
    elif key.endswith(("multipliers", "offsets", "vocab_sizes")):
        kind = GGUFValueType.UINT64
    else:
        kind = GGUFValueType.INT32
    writer.add_key_value(key, value, GGUFValueType.ARRAY, kind)


def _add_tokenizer(writer: GGUFWriter) -> None:
    """Copy the fixtures' byte-level vocabulary."""
    fields = gguf.GGUFReader(FIXTURES / "q4exp-a-f16.gguf").fields
    for key, field in fields.items():
        if key.startswith("tokenizer."):
            inner = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], inner)
    if len(fields["tokenizer.ggml.tokens"].data) != VOCABULARY:
        raise ValueError("the fixtures' vocabulary changed its size")
