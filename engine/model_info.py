"""What a GGUF's header says about a model's size: all that planning needs, without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

from engine.gguf.reader import GGUF, open_gguf
from engine.models.config import LayerConfig, ModelConfig

_FLOAT_TYPES = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Counts and sizes of one model (with its draft layer, when the file has one)."""

    path: Path
    name: str
    architecture: str
    train_context: int
    vocab_size: int
    layers: int
    has_drafts: bool
    stored_bytes: int
    """Bytes of all tensors in the file."""
    quantised_weights: int
    """Weights in quantised types."""
    float_weights: int
    """Weights in F32, F16 and BF16."""
    kv_vectors: tuple[tuple[int, int], ...]
    """Keys and values of one token in all layers: (numbers in a vector, vectors)."""
    index_bytes_per_token: int
    """Keys of the sparse attention's indexer for one token, all layers, in float32."""
    state_bytes: int
    """Recurrent state of a slot, and of one checkpoint: GatedDeltaNet, convolutions, n-grams."""

    @classmethod
    def from_gguf(cls, gguf: GGUF) -> ModelInfo:
        """Reads the header. Raises what `ModelConfig.from_gguf` raises."""
        config = ModelConfig.from_gguf(gguf)
        sizes = {True: 0, False: 0}
        for tensor in gguf.tensors.values():
            sizes[tensor.type.name in _FLOAT_TYPES] += prod(tensor.shape)
        attention = config.attention
        layers = (*config.layers, *config.draft_layers)
        readers = sum(layer.mixer == "attention" for layer in layers) * attention.kv_heads
        return cls(
            path=gguf.path,
            name=config.name,
            architecture=config.architecture,
            train_context=config.context_length,
            vocab_size=config.vocab_size,
            layers=len(config.layers),
            has_drafts=bool(config.draft_layers),
            stored_bytes=sum(tensor.nbytes for tensor in gguf.tensors.values()),
            quantised_weights=sizes[False],
            float_weights=sizes[True],
            kv_vectors=((attention.key_length, readers), (attention.value_length, readers)),
            index_bytes_per_token=sum(_index_bytes(config, layer) for layer in layers),
            state_bytes=sum(_state_bytes(config, layer) for layer in config.layers),
        )


def read_model_info(path: Path) -> ModelInfo:
    """The sizes of the model at `path`; its weights are not read."""
    with open_gguf(path) as gguf:
        return ModelInfo.from_gguf(gguf)


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
