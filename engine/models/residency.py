"""Routed experts of which some lie on the device and the others in host memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from engine.kernels.expert_store import Staging
    from engine.models.tensors import Tensors

_FIELDS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


@dataclass(frozen=True, slots=True)
class Residency:
    """`resident` experts of each layer on the device; a window stages at most `staging` others.

    Every `every` windows (0: never) up to `swaps` of a layer change places by how often they were
    used; then `decay` of that count is left.
    """

    resident: int
    staging: int
    every: int
    swaps: int
    decay: float


class Stores:
    """Makes the stores of all layers of a model, which share their staging."""

    def __init__(self, residency: Residency, device: str) -> None:
        from engine.kernels.expert_store import Staging

        self._residency = residency
        self._staging: Staging = Staging(residency.staging, torch.device(device))

    def matrices(self, tensors: Tensors, prefix: str, count: int) -> dict[str, Any]:
        """Gate, up and down of a layer's `count` experts, by the names of `weights.Experts`."""
        from engine.kernels.expert_store import ExpertStore, Policy

        stacks: list[Callable[[int, int], Any]] = [
            tensors.stack(f"{prefix}{field}.weight") for field in _FIELDS
        ]

        def encode(first: int, last: int) -> tuple[Any, ...]:
            return tuple(stack(first, last) for stack in stacks)

        asked = self._residency
        store = ExpertStore(
            count,
            encode,
            asked.resident,
            self._staging,
            Policy(asked.every, asked.swaps, asked.decay),
        )
        return dict(zip(_FIELDS, (store.gate, store.up, store.down), strict=True))
