"""Builds the blocks of a model with their state for all slots, and copies a slot's state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from engine.layers.attention import Attention, AttentionState, IndexerState
from engine.layers.block import Block
from engine.layers.gated_delta_net import GatedDeltaNet, GatedDeltaNetState
from engine.layers.ngram_embedding import NgramEmbedding, NgramState
from engine.models import weights
from engine.models.config import GatedDeltaNetConfig, LayerConfig, ModelConfig
from engine.ops import Ops


@dataclass(frozen=True, slots=True)
class StateShape:
    """How much state there is: slots, positions a slot, K/V format, most draft rows of a window;
    and how many `checkpoints` there may be, of which so many lie on a card."""

    slots: int
    context: int
    kv: str
    drafts: int
    checkpoints: int = 0
    card_checkpoints: int = 0


def build_block(
    w: weights.Block, layer: LayerConfig, config: ModelConfig, shape: StateShape, ops: Ops
) -> Block:
    """A block with zeroed state."""
    zeros = partial(torch.zeros, device=ops.device)
    mixer: Attention | GatedDeltaNet
    if isinstance(w.mixer, weights.Attention):
        mixer = Attention(
            w.mixer, _attention_state(layer, config, shape, ops), layer.compress_ratio
        )
    else:
        net = config.gated_delta_net
        assert net is not None
        state = GatedDeltaNetState(
            _recurrent(zeros, (shape.slots, net.value_heads), net, ops.device),
            zeros(shape.slots, net.conv_kernel - 1 + shape.drafts + 1, net.channels),
        )
        mixer = GatedDeltaNet(w.mixer, state, net)
    ngram = None
    if w.ngram is not None and config.ngram is not None:
        length = config.ngram.conv_span + shape.drafts + 1
        ring = zeros(shape.slots, length, config.hyper_streams * config.width)
        ngram = NgramEmbedding(w.ngram, NgramState(ring), config.ngram)
    return Block(w, mixer, ngram)


def _recurrent(
    zeros: Callable[..., torch.Tensor],
    heads: tuple[int, int],
    net: GatedDeltaNetConfig,
    device: str,
) -> torch.Tensor:
    """The recurrent state [S, H, K, V]. On a GPU the keys of a value lie together: its threads
    exchange sums over them."""
    if device == "cpu":
        return zeros(*heads, net.key_length, net.value_length)
    return zeros(*heads, net.value_length, net.key_length).transpose(2, 3)


def _attention_state(
    layer: LayerConfig, config: ModelConfig, shape: StateShape, ops: Ops
) -> AttentionState:
    a = config.attention
    cache = ops.kv_cache(
        shape.kv, shape.slots, shape.context, a.kv_heads, a.key_length, a.value_length
    )
    indexer = None
    if layer.compress_ratio and config.indexer is not None:
        ratio, length = layer.compress_ratio, config.indexer.key_length
        indexer = IndexerState(
            torch.zeros(shape.slots, ratio + shape.drafts + 1, length, device=ops.device),
            torch.zeros(shape.slots, shape.context // ratio + 1, length, device=ops.device),
        )
    return AttentionState(cache, indexer)


class EagerState:
    """What slots remember, tensor by tensor: [S, ...] each."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors

    @property
    def size_bytes(self) -> int:
        """Of one slot."""
        return sum(tensor[0].nbytes for tensor in self._tensors)

    def prepare(self) -> None:
        """Nothing: a copy takes its room when it is made."""

    def clear(self, slot: int) -> None:
        """Zeroes."""
        for tensor in self._tensors:
            tensor[slot].zero_()

    def save(self, slot: int) -> list[torch.Tensor]:
        """A copy."""
        return [tensor[slot].clone() for tensor in self._tensors]

    def set_aside(self, saved: list[torch.Tensor]) -> list[torch.Tensor]:
        """The same: there is one memory."""
        return saved

    def restore(self, slot: int, saved: list[torch.Tensor]) -> None:
        """The other way."""
        for tensor, copy in zip(self._tensors, saved, strict=True):
            tensor[slot].copy_(copy)


def recurrent_tensors(blocks: tuple[Block, ...]) -> list[torch.Tensor]:
    """Everything with a slot axis that a checkpoint must copy: what is not one cell a position."""
    found = []
    for block in blocks:
        if isinstance(block.mixer, GatedDeltaNet):
            found += [block.mixer.state.recurrent, block.mixer.state.ring]
        elif block.mixer.state.indexer is not None:
            found.append(block.mixer.state.indexer.raw_keys)
        if block.ngram is not None:
            found.append(block.ngram.state.ring)
    return found


def cell_tensors(blocks: Sequence[Block]) -> list[tuple[torch.Tensor, int]]:
    """Everything that is indexed by position, [S, ...] each, with the tokens of one entry."""
    found: list[tuple[torch.Tensor, int]] = []
    for block in blocks:
        if isinstance(block.mixer, Attention):
            state = block.mixer.state
            found += [(tensor, 1) for tensor in state.cache.tensors]
            if state.indexer is not None:
                found.append((state.indexer.block_keys, block.mixer.ratio))
    return found
