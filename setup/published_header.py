"""The header of a published model before it is downloaded: its tensors, from row and shapes.

Shapes and names: llama.cpp's conversion of `qwen4exp` and `qwen35moe`, checked against published
files (1,224 tensors of Qwen3.8-Flash-Next). Types stand only for what is known: whether a tensor is
quantised, and how experts are stored. `setup/catalogue_info.py` takes sizes from the row instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType

from engine.gguf.header import Header, TensorInfo
from engine.gguf.metadata import MetadataValue
from engine.gguf.reader import GGUF
from engine.gguf.types import quant_type
from setup.catalogue import ModelRow

_HEAD = 256
_KV_HEADS = 2
_DELTA = 128
_CONV_KERNEL = 4
_VOCABULARY = 248_320
_STREAMS, _LOW_RANK = 4, 320
_INDEX_HEADS, _INDEX_KEY = 4, 128
_NGRAM_ROW = 160
# Primes from 20,000,000 on, one for each of 16 heads; their sum is padded to a multiple of 128.
_NGRAM_ROWS = 320_001_536
_PRIMES = tuple(
    20_000_000 + over
    for over in (3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171)
)

Shapes = Iterator[tuple[str, str, tuple[int, ...]]]
"""Name, type and shape in numpy order (slowest first)."""


@dataclass(frozen=True, slots=True)
class _Family:
    """The widths of one architecture."""

    width: int
    heads: int
    value_heads: int
    expert_width: int
    used: int

    @property
    def inner(self) -> int:
        return self.value_heads * _DELTA

    @property
    def channels(self) -> int:
        return 2 * 16 * _DELTA + self.inner


_FAMILIES: Mapping[str, _Family] = MappingProxyType(
    {
        "qwen4exp": _Family(width=2560, heads=24, value_heads=48, expert_width=640, used=10),
        "qwen35moe": _Family(width=2048, heads=16, value_heads=32, expert_width=512, used=8),
    }
)


def published_header(row: ModelRow) -> GGUF:
    """The model of `row` as an open GGUF without bytes: metadata and tensors, nothing to read."""
    family = _FAMILIES[row.architecture]
    names = [*_global(row, family), *_blocks(row, family)]
    tensors = {}
    for name, kind, shape in names:
        form = quant_type(kind)
        nbytes = prod(shape[:-1]) * form.row_bytes(shape[-1])
        tensors[name] = TensorInfo(name, form, shape, shard=0, offset=0, nbytes=nbytes)
    path = Path(row.files[0].name)
    return GGUF(path, (Header(path, 3, _metadata(row, family), tensors),), ())


def _metadata(row: ModelRow, family: _Family) -> Mapping[str, MetadataValue]:
    drafts = _drafts(row)
    values: dict[str, MetadataValue] = {
        "block_count": row.layers + drafts,
        "nextn_predict_layers": drafts,
        "context_length": row.train_context,
        "embedding_length": family.width,
        "full_attention_interval": row.layers // row.attention_layers,
        "attention.head_count": family.heads,
        "attention.head_count_kv": _KV_HEADS,
        "attention.key_length": _HEAD,
        "attention.value_length": _HEAD,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": 64,
        "rope.freq_base": 1e7,
        "expert_count": row.experts_per_layer,
        "expert_used_count": family.used,
        "expert_feed_forward_length": family.expert_width,
        "ssm.conv_kernel": _CONV_KERNEL,
        "ssm.state_size": _DELTA,
        "ssm.group_count": 16,
        "ssm.time_step_rank": family.value_heads,
        "ssm.inner_size": family.inner,
    }
    if _is_flash(row):
        values |= _flash_metadata()
    keys = {f"{row.architecture}.{key}": value for key, value in values.items()}
    names = {"general.architecture": row.architecture, "general.name": f"{row.title} {row.key}"}
    return {**names, **keys}


def _flash_metadata() -> dict[str, MetadataValue]:
    import numpy as np

    offsets = [sum(_PRIMES[:head]) for head in range(len(_PRIMES))]
    return {
        "hyper_connection.count": _STREAMS,
        "hyper_connection.low_rank": _LOW_RANK,
        "attention.indexer.head_count": _INDEX_HEADS,
        "attention.indexer.key_length": _INDEX_KEY,
        "attention.indexer.top_k": 2048,
        "ple.layers": np.array([1]),
        "ple.ngram_size": 3,
        "ple.heads_per_ngram": 8,
        "ple.conv_kernel": _CONV_KERNEL,
        "ple.eos_token_id": 248_044,
        "ple.layer_multipliers": np.array([23703573157769, 20109073645365, 8052911324071]),
        "ple.head_offsets": np.array(offsets),
        "ple.head_vocab_sizes": np.array(_PRIMES),
        "embedding_length_per_layer_input": _NGRAM_ROW,
    }


def _is_flash(row: ModelRow) -> bool:
    return row.architecture == "qwen4exp"


def _drafts(row: ModelRow) -> int:
    """Draft layers in the model's own files: Qwen3.6 brings one, Flash-Next has it beside."""
    return 0 if _is_flash(row) else 1


def _wide_type(row: ModelRow) -> str:
    """How hyper-connections and the n-gram keys are stored: Unsloth quantises them."""
    return "Q8_0" if row.family == "unsloth" else "BF16"


def _global(row: ModelRow, family: _Family) -> Shapes:
    yield "token_embd.weight", "Q8_0", (_VOCABULARY, family.width)
    yield "output.weight", "Q8_0", (_VOCABULARY, family.width)
    if not _is_flash(row):
        yield "output_norm.weight", "F32", (family.width,)
        return
    wide = _STREAMS * family.width
    yield "output_hc_norm.weight", "F32", (wide,)
    yield "output_hc_down.weight", _wide_type(row), (_LOW_RANK, wide)
    yield "output_hc_up.weight", _wide_type(row), (wide, _LOW_RANK)
    yield "per_layer_token_embd.weight", "IQ4_NL", (_NGRAM_ROWS, _NGRAM_ROW)


def _blocks(row: ModelRow, family: _Family) -> Shapes:
    types = [(part.gate_up, part.down) for part in row.experts for _ in range(part.layers)]
    interval = row.layers // row.attention_layers
    for block in range(row.layers + _drafts(row)):
        draft = block >= row.layers
        parts = [_experts(row, family, *(types[block] if types else ("Q4_0", "Q4_0")))]
        full = draft or (block + 1) % interval == 0
        parts.append(_attention(row, family) if full else _delta_net(family))
        parts.append(_hyper_connections(row, family) if _is_flash(row) else _norms(family))
        if draft:
            parts.append(_draft_head(family))
        if _is_flash(row) and block == 1:
            parts.append(_ngrams(row, family))
        for name, kind, shape in (tensor for part in parts for tensor in part):
            # A draft layer of Qwen3.6 is stored in 4 bits: 478.5 MB more in the file that has it.
            kind = "Q4_0" if draft and kind == "Q8_0" else kind
            yield f"blk.{block}.{name}", kind, shape


def _experts(row: ModelRow, family: _Family, gate_up: str, down: str) -> Shapes:
    count, wide, width = row.experts_per_layer, family.expert_width, family.width
    yield "ffn_gate_inp.weight", "F32", (count, width)
    yield "ffn_gate_exps.weight", gate_up, (count, wide, width)
    yield "ffn_up_exps.weight", gate_up, (count, wide, width)
    yield "ffn_down_exps.weight", down, (count, width, wide)
    yield "ffn_gate_inp_shexp.weight", "F32", (width,)
    yield "ffn_gate_shexp.weight", "Q8_0", (wide, width)
    yield "ffn_up_shexp.weight", "Q8_0", (wide, width)
    yield "ffn_down_shexp.weight", "Q8_0", (width, wide)


def _attention(row: ModelRow, family: _Family) -> Shapes:
    queries, width = family.heads * _HEAD, family.width
    yield "attn_q.weight", "Q8_0", (2 * queries, width)
    yield "attn_k.weight", "Q8_0", (_KV_HEADS * _HEAD, width)
    yield "attn_v.weight", "Q8_0", (_KV_HEADS * _HEAD, width)
    yield "attn_output.weight", "Q8_0", (width, queries)
    yield "attn_q_norm.weight", "F32", (_HEAD,)
    yield "attn_k_norm.weight", "F32", (_HEAD,)
    if _is_flash(row):
        yield "indexer.q_proj.weight", "BF16", (_INDEX_HEADS * _INDEX_KEY, width)
        yield "indexer.k_proj.weight", "BF16", (_INDEX_KEY, width)
        yield "indexer.q_norm.weight", "F32", (_INDEX_KEY,)
        yield "indexer.k_norm.weight", "F32", (_INDEX_KEY,)


def _delta_net(family: _Family) -> Shapes:
    width = family.width
    yield "attn_qkv.weight", "Q8_0", (family.channels, width)
    yield "attn_gate.weight", "Q8_0", (family.inner, width)
    yield "ssm_alpha.weight", "BF16", (family.value_heads, width)
    yield "ssm_beta.weight", "BF16", (family.value_heads, width)
    yield "ssm_a", "F32", (family.value_heads,)
    yield "ssm_dt.bias", "F32", (family.value_heads,)
    yield "ssm_conv1d.weight", "F32", (family.channels, _CONV_KERNEL)
    yield "ssm_norm.weight", "F32", (_DELTA,)
    yield "ssm_out.weight", "Q8_0", (width, family.inner)


def _hyper_connections(row: ModelRow, family: _Family) -> Shapes:
    wide = _STREAMS * family.width
    for part in ("hc_attn", "hc_ffn"):
        yield f"{part}_norm.weight", "F32", (wide,)
        yield f"{part}_down.weight", _wide_type(row), (_LOW_RANK, wide)
        yield f"{part}_up.weight", _wide_type(row), (wide, _LOW_RANK)
        yield f"{part}_inject.weight", "BF16", (_STREAMS, wide)


def _norms(family: _Family) -> Shapes:
    yield "attn_norm.weight", "F32", (family.width,)
    yield "post_attention_norm.weight", "F32", (family.width,)


def _ngrams(row: ModelRow, family: _Family) -> Shapes:
    wide = _STREAMS * family.width
    yield "ple_key.weight", _wide_type(row), (wide, family.width)
    yield "ple_value.weight", _wide_type(row), (family.width, family.width)
    for part in ("key", "query", "conv"):
        yield f"ple_norm_{part}.weight", "F32", (wide,)
    yield "ple_conv1d.weight", "F16", (wide, _CONV_KERNEL)


def _draft_head(family: _Family) -> Shapes:
    yield "nextn.eh_proj.weight", "Q8_0", (family.width, 2 * family.width)
    for part in ("enorm", "hnorm", "shared_head_norm"):
        yield f"nextn.{part}.weight", "F32", (family.width,)
