"""A gated delta net's layer of random weights and state, for kernels and reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.kernels import gated_delta_net as kernels
from engine.kernels.inputs import Input
from engine.models.config import GatedDeltaNetConfig
from engine.reference import gated_delta_net as reference
from engine.rows import Rows

CONFIG = GatedDeltaNetConfig(
    key_heads=1, value_heads=2, key_length=48, value_length=5, conv_kernel=4, gate="sigmoid"
)
DRAFTS = 3
EPS = 1e-6


def random(*shape: int, seed: int) -> torch.Tensor:
    """float32, normal."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def inputs(
    rows: int, config: GatedDeltaNetConfig = CONFIG, seed: int = 0
) -> tuple[torch.Tensor, ...]:
    """What a window's rows bring: qkv, gate, alpha, beta."""
    heads, seed = config.value_heads, 10 * seed
    return (
        random(rows, config.channels, seed=seed),
        random(rows, heads * config.value_length, seed=seed + 1) * 3,
        random(rows, heads, seed=seed + 2) * 2,
        random(rows, heads, seed=seed + 3) * 2,
    )


@dataclass
class Layer:
    """Weights and the state of all slots. The ring holds just the reach and a draft window."""

    config: GatedDeltaNetConfig = CONFIG
    slots: int = 3
    keys_together: bool = True
    state: torch.Tensor = field(init=False)
    ring: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        config = self.config
        heads = config.value_heads
        self.state = random(self.slots, heads, config.value_length, config.key_length, seed=91)
        self.state = self.state.transpose(2, 3)
        if not self.keys_together:
            self.state = self.state.contiguous()
        self.ring = random(self.slots, config.conv_kernel + DRAFTS, config.channels, seed=92)
        self.conv = random(config.channels, config.conv_kernel, seed=93)
        self.norm = torch.linspace(0.5, 1.5, config.value_length)
        self.decay, self.bias = -torch.linspace(0.05, 4, heads), torch.linspace(-1, 2, heads)

    def copy(self) -> Layer:
        """With state and ring of its own."""
        layer = Layer(self.config, self.slots, self.keys_together)
        layer.state.copy_(self.state)
        layer.ring.copy_(self.ring)
        return layer

    def reference(
        self, x: Sequence[torch.Tensor], rows: Rows
    ) -> tuple[torch.Tensor, reference.DeltaInputs]:
        """What the reference makes of inputs; changes state and ring."""
        state = self.state.contiguous()
        arguments: list[Any] = [*x, *self._layer(state), rows]
        made = reference.delta_mixer(*arguments)
        self.state.copy_(state)
        return made

    def kernels(self, x: Sequence[torch.Tensor], rows: Rows) -> tuple[Input, kernels.Walked]:
        """What the kernels make of them."""
        arguments: list[Any] = [*x, *self._layer(self.state), rows]
        return kernels.delta_mixer(*arguments)

    def _layer(self, state: torch.Tensor) -> tuple[Any, ...]:
        weights = self.conv, self.ring, self.decay, self.bias, state, self.norm
        return *weights, self.config, EPS
