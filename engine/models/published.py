"""Headers of the published models, from their widths and types: metadata and tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np

from engine.gguf.header import Header, TensorInfo
from engine.gguf.metadata import MetadataValue
from engine.gguf.types import quant_type
from engine.models.geometry import CONV_KERNEL, STREAMS, Geometry
from engine.models.published_tensors import Shapes, block_tensors, global_tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTypes:
    """Which type a tensor is stored in: `named` by its name without `.weight`, else by its class.

    Classes: vectors and the router F32, `dense` matrices, `wide` ones of the hyper-connections and
    n-gram keys, `small` ones. `experts`: types of gate and up, and of down, of every trunk layer.
    """

    experts: tuple[tuple[str, str], ...]
    dense: str = "Q8_0"
    wide: str = "BF16"
    small: str = "BF16"
    table: str = "IQ4_NL"
    named: Mapping[str, str] = field(default_factory=dict)
    draft_dense: str = "Q8_0"
    draft_experts: tuple[str, str] = ("Q4_0", "Q4_0")

    def of(self, name: str, kind: str, block: int, draft: bool) -> str:
        """The type of a tensor of a block; `kind` is a class or a type."""
        if kind in ("gate_up", "down"):
            pair = self.draft_experts if draft else self.experts[block]
            return pair[kind == "down"]
        plain = name.removesuffix(".weight")
        if draft and kind == "dense":
            return self.draft_dense
        if plain in self.named:
            return self.named[plain]
        classes = {
            "dense": self.dense,
            "wide": self.wide,
            "small": self.small,
            "table": self.table,
        }
        return classes.get(kind, kind)


def published_model(geometry: Geometry, types: StoredTypes, name: str, path: Path) -> Header:
    """The header of such a model: its metadata, and its tensors without places in a file."""
    tensors = {}
    for tensor, kind, shape in _tensors(geometry, types):
        form = quant_type(kind)
        nbytes = prod(shape[:-1]) * form.row_bytes(shape[-1])
        tensors[tensor] = TensorInfo(tensor, form, shape, shard=0, offset=0, nbytes=nbytes)
    return Header(path, 3, _metadata(geometry, name), tensors)


def _metadata(g: Geometry, name: str) -> Mapping[str, MetadataValue]:
    values: dict[str, MetadataValue] = {
        "block_count": g.layers + g.drafts,
        "nextn_predict_layers": g.drafts,
        "context_length": g.train_context,
        "embedding_length": g.width,
        "full_attention_interval": g.interval,
        "attention.head_count": g.heads,
        "attention.head_count_kv": g.kv_heads,
        "attention.key_length": g.head_length,
        "attention.value_length": g.head_length,
        "attention.layer_norm_rms_epsilon": float(np.float32(1e-6)),
        "rope.dimension_count": 64,
        "rope.freq_base": 1e7,
        "expert_count": g.experts,
        "expert_used_count": g.used,
        "expert_feed_forward_length": g.expert_width,
        "expert_shared_feed_forward_length": g.expert_width,
        "ssm.conv_kernel": CONV_KERNEL,
        "ssm.state_size": g.delta_length,
        "ssm.group_count": g.key_heads,
        "ssm.time_step_rank": g.value_heads,
        "ssm.inner_size": g.inner,
    }
    values |= _arrays(g)
    keys = {f"{g.architecture}.{key}": value for key, value in values.items()}
    return {"general.architecture": g.architecture, "general.name": name, **keys}


def _arrays(g: Geometry) -> dict[str, MetadataValue]:
    values: dict[str, MetadataValue] = {
        "rope.dimension_sections": np.array([11, 11, 10, 0], np.int32)
    }
    if not g.flash:
        return values
    offsets = [sum(g.primes[:head]) for head in range(len(g.primes))]
    ratios = [4 * ((block + 1) % g.interval == 0) for block in range(g.layers)] + [0] * g.drafts
    return values | {
        "hyper_connection.count": STREAMS,
        "hyper_connection.low_rank": g.low_rank,
        "attention.compress_ratios": np.array(ratios, np.int32),
        "attention.indexer.head_count": g.index_heads,
        "attention.indexer.key_length": g.delta_length,
        "attention.indexer.top_k": 2048,
        "ple.layers": np.array([1], np.int32),
        "ple.ngram_size": 3,
        "ple.heads_per_ngram": len(g.primes) // 2,
        "ple.conv_kernel": CONV_KERNEL,
        "ple.eos_token_id": g.eos,
        "ple.layer_multipliers": np.array(
            [23703573157769, 20109073645365, 8052911324071], np.uint64
        ),
        "ple.head_offsets": np.array(offsets, np.uint64),
        "ple.head_vocab_sizes": np.array(g.primes, np.uint64),
        "embedding_length_per_layer_input": g.width // len(g.primes),
    }


def _tensors(g: Geometry, types: StoredTypes) -> Shapes:
    """Every tensor with its type."""
    for name, kind, shape in global_tensors(g):
        yield name, types.of(name, kind, 0, False), shape
    for block in range(g.layers + g.drafts):
        draft = block >= g.layers
        for name, kind, shape in block_tensors(g, block):
            yield f"blk.{block}.{name}", types.of(name, kind, block, draft), shape
