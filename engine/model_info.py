"""What a GGUF's header says about a model's size: all that planning needs, without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Counts and sizes of one model (with its draft layer, when it has one)."""

    path: Path
    name: str
    architecture: str
    train_context: int
    vocab_size: int
    layers: int
    has_drafts: bool
    weight_bytes: int
    """Stored bytes of all tensors."""
    expert_bytes: int
    """The part of `weight_bytes` that is routed experts."""
    key_values: tuple[int, ...]
    """Numbers in one token's keys and values, one entry for each attention layer's K and V heads
    (the draft layer's too): a layer with 2 heads of 256 has the entries 512 (K) and 512 (V)."""
    index_bytes_per_token: int
    """Bytes of the indexer's keys for one token, all layers."""
    state_bytes: int
    """Recurrent state of one slot: GatedDeltaNet, convolutions, n-gram window. Also one checkpoint."""
