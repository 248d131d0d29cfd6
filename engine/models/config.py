"""The shapes of a model, read from its GGUF metadata. No constant of one model stands in the code.

Key names and meanings: llama.cpp's conventions for `qwen4exp` and `qwen35moe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engine.gguf.reader import GGUF
from engine.models.metadata_keys import Keys

Architecture = Literal["qwen4exp", "qwen35moe"]
GateActivation = Literal["sigmoid", "silu"]

# What the architecture fixes without a metadata key: the activation of the GatedDeltaNet gate.
_GATE: Mapping[Architecture, GateActivation] = {"qwen4exp": "sigmoid", "qwen35moe": "silu"}
# Far above any model; a damaged count must not cost minutes before a tensor is missed.
_MOST_BLOCKS = 4096


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """Grouped-query attention with an output gate. `rotary` is the even number of rotated dims."""

    heads: int
    kv_heads: int
    key_length: int
    value_length: int
    rotary: int
    freq_base: float


@dataclass(frozen=True, slots=True)
class GatedDeltaNetConfig:
    """Heads and widths of the linear-attention mixer. Value head j reads key head j % key_heads."""

    key_heads: int
    value_heads: int
    key_length: int
    value_length: int
    conv_kernel: int
    gate: GateActivation

    @property
    def channels(self) -> int:
        """Width of the convolution: queries, keys, values."""
        return 2 * self.key_heads * self.key_length + self.value_heads * self.value_length


@dataclass(frozen=True, slots=True)
class IndexerConfig:
    """The block selector of sparse attention: `top_k` tokens in blocks of the layer's ratio."""

    heads: int
    key_length: int
    top_k: int


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """Routed experts of a layer and how many of them one token uses."""

    count: int
    used: int


@dataclass(frozen=True, slots=True)
class NgramConfig:
    """Hashed n-gram embeddings (PLE): `multipliers` mix tokens, head h owns `sizes[h]` rows."""

    layers: frozenset[int]
    size: int
    heads_per_ngram: int
    conv_kernel: int
    eos_token: int
    multipliers: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def history(self) -> int:
        """Tokens before the current one that its n-grams read."""
        return self.size - 1

    @property
    def conv_span(self) -> int:
        """Rows before the current one that the dilated convolution reads."""
        return (self.conv_kernel - 1) * self.size


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """One block. `compress_ratio`: tokens a block of the indexer holds; 0: dense attention."""

    index: int
    mixer: Literal["gated_delta_net", "attention"]
    compress_ratio: int
    ngram: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Everything the engine needs to know about a model's shape."""

    architecture: Architecture
    name: str
    context_length: int
    width: int
    vocab_size: int
    rms_eps: float
    layers: tuple[LayerConfig, ...]
    draft_layers: tuple[LayerConfig, ...]
    attention: AttentionConfig
    gated_delta_net: GatedDeltaNetConfig | None
    indexer: IndexerConfig | None
    experts: ExpertsConfig
    hyper_streams: int
    """Residual streams of the hyper-connections; 0: an ordinary residual."""
    ngram: NgramConfig | None

    @classmethod
    def from_gguf(cls, gguf: GGUF) -> ModelConfig:
        """Reads the shapes. Raises UnsupportedModelError or ModelFileError naming the key."""
        keys = Keys(gguf.metadata, gguf.path)
        architecture = keys.architecture
        ngram = _ngram(keys) if architecture == "qwen4exp" else None
        layers = _layers(keys, ngram)
        trunk = len(layers) - keys.integer("nextn_predict_layers", 0)
        return cls(
            architecture=architecture,
            name=keys.name,
            context_length=keys.integer("context_length", minimum=1),
            width=keys.integer("embedding_length", minimum=1),
            vocab_size=_vocab_size(gguf),
            rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
            layers=layers[:trunk],
            draft_layers=layers[trunk:],
            attention=_attention(keys),
            gated_delta_net=_gated_delta_net(keys, layers, architecture),
            indexer=_indexer(keys, layers),
            experts=_experts(keys),
            hyper_streams=(
                keys.integer("hyper_connection.count", minimum=1)
                if architecture == "qwen4exp"
                else 0
            ),
            ngram=ngram,
        )


def _vocab_size(gguf: GGUF) -> int:
    """Rows of the embedding; a file with a draft layer alone has only its vocabulary."""
    embedding = gguf.tensors.get("token_embd.weight")
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    if embedding is None and isinstance(tokens, list):
        return len(tokens)
    return gguf.tensor("token_embd.weight").shape[0]


def _layers(keys: Keys, ngram: NgramConfig | None) -> tuple[LayerConfig, ...]:
    count = keys.integer("block_count", minimum=1, maximum=_MOST_BLOCKS)
    drafts = keys.integer("nextn_predict_layers", 0)
    if drafts > 1 or drafts >= count:
        raise keys.unusable("nextn_predict_layers", drafts, "0 or 1, and less than block_count")
    interval = keys.integer("full_attention_interval", 4, minimum=1)
    recurrent = keys.integers("attention.recurrent_layers", ())
    ratios = keys.integers("attention.compress_ratios", ())
    for key, values in (("recurrent_layers", recurrent), ("compress_ratios", ratios)):
        if values and len(values) not in (count, count - drafts):
            raise keys.unusable(f"attention.{key}", f"{len(values)} entries", f"{count} entries")
    built = []
    for index in range(count):
        draft = index >= count - drafts
        is_recurrent = (index + 1) % interval != 0
        if recurrent and index < len(recurrent):
            is_recurrent = bool(recurrent[index])
        ratio = 4 if ngram is not None and not draft else 0
        if index < len(ratios):
            ratio = ratios[index]
        recurs = is_recurrent and not draft
        built.append(
            LayerConfig(
                index=index,
                mixer="gated_delta_net" if recurs else "attention",
                compress_ratio=0 if recurs else ratio,
                ngram=ngram is not None and index in ngram.layers,
            )
        )
    return tuple(built)


def _experts(keys: Keys) -> ExpertsConfig:
    count = keys.integer("expert_count", minimum=1)
    return ExpertsConfig(count, keys.integer("expert_used_count", minimum=1, maximum=count))


def _attention(keys: Keys) -> AttentionConfig:
    heads = keys.integer("attention.head_count", minimum=1)
    kv_heads = keys.integer("attention.head_count_kv", heads, minimum=1)
    if heads % kv_heads:
        raise keys.unusable(
            "attention.head_count", heads, f"a multiple of head_count_kv {kv_heads}"
        )
    key_length = keys.integer("attention.key_length", minimum=1)
    value_length = keys.integer("attention.value_length", key_length, minimum=1)
    if value_length != key_length:  # a head's gate has the width of its query
        raise keys.unusable("attention.value_length", value_length, f"key_length, {key_length}")
    rotary = keys.integer("rope.dimension_count", key_length)
    if rotary % 2 or rotary > key_length:
        raise keys.unusable("rope.dimension_count", rotary, f"even, at most {key_length}")
    return AttentionConfig(
        heads=heads,
        kv_heads=kv_heads,
        key_length=key_length,
        value_length=value_length,
        rotary=rotary,
        freq_base=keys.number("rope.freq_base", 10000.0),
    )


def _gated_delta_net(
    keys: Keys, layers: tuple[LayerConfig, ...], architecture: Architecture
) -> GatedDeltaNetConfig | None:
    if all(layer.mixer == "attention" for layer in layers):
        return None
    value_heads = keys.integer("ssm.time_step_rank", minimum=1)
    key_heads = keys.integer("ssm.group_count", minimum=1)
    inner = keys.integer("ssm.inner_size", minimum=1)
    if value_heads % key_heads:
        raise keys.unusable("ssm.time_step_rank", value_heads, f"a multiple of {key_heads}")
    if inner % value_heads:
        raise keys.unusable("ssm.inner_size", inner, f"a multiple of {value_heads}")
    return GatedDeltaNetConfig(
        key_heads=key_heads,
        value_heads=value_heads,
        key_length=keys.integer("ssm.state_size", minimum=1),
        value_length=inner // value_heads,
        conv_kernel=keys.integer("ssm.conv_kernel", minimum=1),
        gate=_GATE[architecture],
    )


def _indexer(keys: Keys, layers: tuple[LayerConfig, ...]) -> IndexerConfig | None:
    ratios = {layer.compress_ratio for layer in layers} - {0}
    if not ratios:
        return None
    top_k = keys.integer("attention.indexer.top_k", minimum=1)
    if top_k < max(ratios):
        raise keys.unusable("attention.indexer.top_k", top_k, f"at least {max(ratios)}")
    return IndexerConfig(
        heads=keys.integer("attention.indexer.head_count", minimum=1),
        key_length=keys.integer("attention.indexer.key_length", minimum=1),
        top_k=top_k,
    )


def _ngram(keys: Keys) -> NgramConfig | None:
    layers = keys.integers("ple.layers", ())
    if not layers:
        return None
    config = NgramConfig(
        layers=frozenset(layers),
        size=keys.integer("ple.ngram_size", minimum=2),
        heads_per_ngram=keys.integer("ple.heads_per_ngram", minimum=1),
        conv_kernel=keys.integer("ple.conv_kernel", minimum=1),
        eos_token=keys.integer("ple.eos_token_id"),
        multipliers=keys.integers("ple.layer_multipliers"),
        offsets=keys.integers("ple.head_offsets"),
        sizes=keys.integers("ple.head_vocab_sizes"),
    )
    heads = config.heads_per_ngram * (config.size - 1)
    lengths = len(config.multipliers), len(config.offsets), len(config.sizes)
    if lengths != (config.size, heads, heads) or min(config.sizes) < 1:
        raise keys.unusable(
            "ple.layer_multipliers/head_offsets/head_vocab_sizes",
            f"{lengths} entries",
            f"({config.size}, {heads}, {heads}) entries and sizes of at least 1",
        )
    return config
