"""What a GGUF's header says about a model's size: all that planning needs, without its weights."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from engine.card_weights import CardWeights
from engine.config import RunConfig
from engine.errors import ConfigError
from engine.gguf.reader import GGUF, open_gguf
from engine.model_source import open_model
from engine.models.config import LayerConfig, ModelConfig

_EXPERTS = r"blk\.(\d+)\.ffn_(gate|up|down|gate_up)_exps\."
_FLOAT_TYPES = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Counts and sizes of one model (with its draft layer, when the file has one)."""

    path: Path
    name: str
    architecture: str
    train_context: int
    vocab_size: int
    width: int
    layers: int
    has_drafts: bool
    stored_bytes: int
    """Bytes of all tensors in the file."""
    quantised_weights: int
    """Weights in quantised types that are loaded; embedding tables stay in the file."""
    float_weights: int
    """Loaded weights in F32, F16 and BF16."""
    kv_vectors: tuple[tuple[int, int], ...]
    """Keys and values of one token in all layers: (numbers in a vector, vectors)."""
    index_bytes_per_token: int
    """Keys of the sparse attention's indexer for one token, all layers, in float32."""
    state_bytes: int
    """Recurrent state of a slot, and of one checkpoint: GatedDeltaNet, convolutions, n-grams."""
    expert_bytes: int
    """Routed experts of the trunk, as stored."""
    expert_pairs: int
    """Pairs of a trunk layer and one of its routed experts."""
    table_bytes: int
    """The n-gram table, as stored; 0: there is none."""
    draft_bytes: int
    """The draft layer, as stored, with its experts; 0: there is none."""
    on_card: CardWeights
    """The weights as they lie in a card's memory."""
    row_state_bytes: int
    """What the rings of a slot's state take for each row that a window may still drop."""

    @property
    def dense_bytes(self) -> int:
        """What every token reads, as stored: all but experts, n-gram table and draft layer."""
        return self.stored_bytes - self.expert_bytes - self.table_bytes - self.draft_bytes

    @classmethod
    def from_gguf(cls, gguf: GGUF) -> ModelInfo:
        """Reads the header. Raises what `ModelConfig.from_gguf` raises."""
        config = ModelConfig.from_gguf(gguf)
        quantised, in_floats = _weights(gguf)
        attention = config.attention
        layers = (*config.layers, *config.draft_layers)
        readers = sum(layer.mixer == "attention" for layer in layers) * attention.kv_heads
        trunk = len(config.layers)
        return cls(
            path=gguf.path,
            name=config.name,
            architecture=config.architecture,
            train_context=config.context_length,
            vocab_size=config.vocab_size,
            width=config.width,
            layers=trunk,
            has_drafts=bool(config.draft_layers),
            stored_bytes=sum(tensor.nbytes for tensor in gguf.tensors.values()),
            quantised_weights=quantised,
            float_weights=in_floats,
            kv_vectors=((attention.key_length, readers), (attention.value_length, readers)),
            index_bytes_per_token=sum(_index_bytes(config, layer) for layer in layers),
            state_bytes=sum(_state_bytes(config, layer) for layer in config.layers),
            expert_bytes=_stored(
                gguf, r"blk\.(\d+)\.ffn_(gate|up|down|gate_up)_exps\.", below=trunk
            ),
            expert_pairs=trunk * config.experts.count,
            table_bytes=_stored(gguf, r"per_layer_token_embd\."),
            draft_bytes=_stored(gguf, r"blk\.(\d+)\.", least=trunk),
            on_card=CardWeights.from_gguf(gguf, config),
            row_state_bytes=sum(_row_bytes(config, layer) for layer in config.layers),
        )


def read_model_info(path: Path, mtp: Path | None = None) -> ModelInfo:
    """The sizes of the model at `path`, with the draft layer of a second file when one is named.

    Weights are not read.
    """
    with open_gguf(path) as gguf:
        info = ModelInfo.from_gguf(gguf)
    if mtp is None:
        return info
    with open_gguf(mtp) as gguf:
        return _with_draft_layer(info, gguf)


def named_model_info(run: RunConfig) -> ModelInfo:
    """The sizes of the model that is asked for; `ConfigError` when none or two are named."""
    if run.synthetic is not None:
        if run.model is not None:
            raise ConfigError(
                f"{run.model} and --synthetic {run.synthetic} are both given",
                "leave one of them out",
            )
        return ModelInfo.from_gguf(open_model("", run.synthetic))
    if run.model is None:
        raise ConfigError("no model is named", "give --model FILE.gguf")
    return read_model_info(run.model, run.mtp)


def _with_draft_layer(info: ModelInfo, gguf: GGUF) -> ModelInfo:
    quantised, in_floats = _weights(gguf)
    stored = sum(tensor.nbytes for tensor in gguf.tensors.values())
    return replace(
        info,
        stored_bytes=info.stored_bytes + stored,
        quantised_weights=info.quantised_weights + quantised,
        float_weights=info.float_weights + in_floats,
        draft_bytes=info.draft_bytes + stored,
        on_card=replace(
            info.on_card,
            draft_bytes=info.on_card.draft_bytes
            + CardWeights.from_gguf(gguf, ModelConfig.from_gguf(gguf)).draft_bytes,
        ),
    )


def _weights(gguf: GGUF) -> tuple[int, int]:
    """How many weights are loaded from quantised types, and how many from floats.

    Rows of embedding tables are read from the file when they are needed; the token embedding is
    loaded, too, when it is the output matrix as well.
    """
    sizes = {True: 0, False: 0}
    tables = {"per_layer_token_embd.weight"}
    if "output.weight" in gguf.tensors:
        tables.add("token_embd.weight")
    for name, tensor in gguf.tensors.items():
        if name not in tables:
            sizes[tensor.type.name in _FLOAT_TYPES] += prod(tensor.shape)
    return sizes[False], sizes[True]


def _stored(gguf: GGUF, pattern: str, least: int = 0, below: int = 1 << 32) -> int:
    """Bytes of the tensors whose name begins so, with a block number in [least, below)."""
    found = ((re.match(pattern, name), tensor) for name, tensor in gguf.tensors.items())
    return sum(
        tensor.nbytes
        for match, tensor in found
        if match and (not match.re.groups or least <= int(match[1]) < below)
    )


def _index_bytes(config: ModelConfig, layer: LayerConfig) -> int:
    if config.indexer is None or not layer.compress_ratio:
        return 0
    return -(-4 * config.indexer.key_length // layer.compress_ratio)


def _state_bytes(config: ModelConfig, layer: LayerConfig) -> int:
    numbers = 0
    net = config.gated_delta_net
    if layer.mixer == "gated_delta_net" and net is not None:
        numbers += net.value_heads * net.key_length * net.value_length
        numbers += (net.conv_kernel - 1) * net.channels
    if layer.ngram and config.ngram is not None:
        numbers += config.ngram.conv_span * max(1, config.hyper_streams) * config.width
    return 4 * numbers


def _row_bytes(config: ModelConfig, layer: LayerConfig) -> int:
    """One row more in the rings of a layer."""
    numbers = 0
    if layer.mixer == "gated_delta_net" and config.gated_delta_net is not None:
        numbers += config.gated_delta_net.channels
    if layer.compress_ratio and config.indexer is not None:
        numbers += config.indexer.key_length
    if layer.ngram and config.ngram is not None:
        numbers += max(1, config.hyper_streams) * config.width
    return 4 * numbers
