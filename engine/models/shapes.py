"""The shape that every tensor must have, from the metadata, by the field names of `weights.py`.

A size that the metadata of `ModelConfig` do not fix (the width of an expert) is taken from the
first tensor of a group and must then hold for the whole group.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

from engine.errors import ModelFileError
from engine.gguf.reader import GGUF
from engine.models.config import ModelConfig, NgramConfig

# Axes of each field, slowest first. Lower-case axes are free.
_AXES: Mapping[str, str] = MappingProxyType(
    {
        "token_embd": "VOCABULARY WIDTH",
        "embed_tokens": "VOCABULARY WIDTH",
        "output": "VOCABULARY WIDTH",
        "shared_head_head": "VOCABULARY WIDTH",
        "output_norm": "WIDTH",
        "shared_head_norm": "WIDTH",
        "attn_norm": "WIDTH",
        "post_attention_norm": "WIDTH",
        "enorm": "WIDTH",
        "hnorm": "STREAMS",
        "eh_proj": "WIDTH TWO_WIDTHS",
        "norm": "STREAMS",
        "down": "low STREAMS",
        "up": "STREAMS low",
        "inject": "STREAM_COUNT STREAMS",
        "attn_qkv": "CHANNELS WIDTH",
        "attn_gate": "INNER WIDTH",
        "ssm_alpha": "VALUE_HEADS WIDTH",
        "ssm_beta": "VALUE_HEADS WIDTH",
        "ssm_a": "VALUE_HEADS",
        "ssm_dt": "VALUE_HEADS",
        "ssm_conv1d": "CHANNELS CONV_KERNEL",
        "ssm_norm": "VALUE_LENGTH",
        "ssm_out": "WIDTH INNER",
        "attn_q": "QUERIES_AND_GATES WIDTH",
        "attn_k": "KEYS WIDTH",
        "attn_v": "VALUES WIDTH",
        "attn_output": "WIDTH ATTENDED",
        "attn_q_norm": "HEAD",
        "attn_k_norm": "HEAD",
        "q_proj": "INDEXER_QUERIES WIDTH",
        "k_proj": "INDEXER_KEY WIDTH",
        "q_norm": "INDEXER_KEY",
        "k_norm": "INDEXER_KEY",
        "ffn_gate_inp": "EXPERTS WIDTH",
        "ffn_gate_exps": "EXPERTS routed WIDTH",
        "ffn_up_exps": "EXPERTS routed WIDTH",
        "ffn_down_exps": "EXPERTS WIDTH routed",
        "ffn_gate_inp_shexp": "WIDTH",
        "ffn_gate_shexp": "shared WIDTH",
        "ffn_up_shexp": "shared WIDTH",
        "ffn_down_shexp": "WIDTH shared",
        "per_layer_token_embd": "TABLE PART",
        "ple_key": "STREAMS EMBEDDING",
        "ple_value": "WIDTH EMBEDDING",
        "ple_norm_key": "STREAMS",
        "ple_norm_query": "STREAMS",
        "ple_norm_conv": "STREAMS",
        "ple_conv1d": "STREAMS NGRAM_KERNEL",
    }
)


class Shapes:
    """Checks the tensors of one file against its metadata."""

    def __init__(self, config: ModelConfig, gguf: GGUF) -> None:
        self._sizes = _sizes(config)
        self._path = gguf.path
        table = gguf.tensors.get("per_layer_token_embd.weight")
        if config.ngram is not None and table is not None:
            self._sizes |= _table_sizes(config.ngram, table.shape)

    def check(
        self, name: str, field: str, found: tuple[int, ...], free: dict[str, int]
    ) -> tuple[int, ...]:
        """The shape of tensor `name`, whose shape in the file is `found`.

        Axes of length 1 do not count. `free` holds the sizes of a group's free axes so far; a field
        has one of them at most. Raises ModelFileError naming the tensor and both shapes.
        """
        axes = _AXES[field].split()
        sizes = {axis: self._sizes.get(axis, free.get(axis, 0)) for axis in axes}
        wanted = [str(size or "any") for size in sizes.values()]
        for axis in axes:
            if not sizes[axis]:
                sizes[axis] = prod(found) // prod(size for size in sizes.values() if size)
        expected = tuple(sizes.values())
        if _without_ones(expected) != _without_ones(found):
            raise ModelFileError(
                f"{self._path}: tensor {name} has the shape {list(found)}, "
                f"by the metadata it should be [{', '.join(wanted)}]",
                hint="The file is damaged or was converted by a tool that Strata does not know.",
            )
        free.update({axis: size for axis, size in sizes.items() if axis not in self._sizes})
        return expected


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _sizes(config: ModelConfig) -> dict[str, int]:
    """Sizes of the named axes; those of parts that the model lacks are missing."""
    a, net, indexer = config.attention, config.gated_delta_net, config.indexer
    sizes = {
        "VOCABULARY": config.vocab_size,
        "WIDTH": config.width,
        "TWO_WIDTHS": 2 * config.width,
        "STREAM_COUNT": config.hyper_streams,
        "STREAMS": max(config.hyper_streams, 1) * config.width,
        "EXPERTS": config.experts.count,
        "QUERIES_AND_GATES": 2 * a.heads * a.key_length,
        "KEYS": a.kv_heads * a.key_length,
        "VALUES": a.kv_heads * a.value_length,
        "ATTENDED": a.heads * a.value_length,
        "HEAD": a.key_length,
    }
    if net is not None:
        sizes |= {
            "CHANNELS": net.channels,
            "INNER": net.value_heads * net.value_length,
            "VALUE_HEADS": net.value_heads,
            "VALUE_LENGTH": net.value_length,
            "CONV_KERNEL": net.conv_kernel,
        }
    if indexer is not None:
        sizes["INDEXER_QUERIES"] = indexer.heads * indexer.key_length
        sizes["INDEXER_KEY"] = indexer.key_length
    if config.ngram is not None:
        sizes["NGRAM_KERNEL"] = config.ngram.conv_kernel
    return sizes


def _table_sizes(ngram: NgramConfig, shape: tuple[int, ...]) -> dict[str, int]:
    """Rows of the n-gram table (more than the heads own do no harm) and widths of its rows."""
    last = max(a + n for a, n in zip(ngram.offsets, ngram.sizes, strict=True))
    heads = len(ngram.sizes)
    return {"TABLE": max(last, shape[0]), "PART": shape[-1], "EMBEDDING": heads * shape[-1]}
