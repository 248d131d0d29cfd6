"""Where `auto` puts the layers: the placement that the cost model predicts to be fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.layer_split import even_split


@dataclass(frozen=True, slots=True)
class AutoSplit:
    """A placement and what the model says of it. `first_layers`: of each later card."""

    first_layers: tuple[int, ...]
    predicted_ms: float
    held_pairs: int
    pairs: int
    held_mass: float


def auto_split(
    layers: int,
    experts_per_layer: int,
    expert_bytes: int,
    rooms_bytes: Sequence[int],
    layer_ms: Sequence[float],
) -> AutoSplit:
    """The placement for cards with so much room (thin version)."""
    split = even_split(layers, len(rooms_bytes))
    return AutoSplit(split, 0.0, 0, layers * experts_per_layer, 0.0)
