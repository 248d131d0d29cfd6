"""Routed experts of which some lie on the device and the others in host memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from engine.kernels.expert_store import ExpertStore, Staging
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


@dataclass(frozen=True, slots=True)
class ExpertUse:
    """How many experts windows found on the device, and how many came from host memory."""

    found: int
    fetched: int

    @property
    def hit_rate(self) -> float:
        """The share that lay on the device; 1 where none was asked for."""
        return self.found / max(1, self.found + self.fetched) if self.fetched else 1.0

    def since(self, before: ExpertUse) -> ExpertUse:
        """What came after `before`."""
        return ExpertUse(self.found - before.found, self.fetched - before.fetched)


class Stores:
    """Makes the stores of all layers of a model, which share their staging, and counts in them."""

    def __init__(self, residency: Residency, device: str) -> None:
        from engine.kernels.expert_store import Staging

        self._residency = residency
        self._stores: list[ExpertStore] = []
        self._staging: Staging = Staging(residency.staging, torch.device(device))

    def use(self) -> ExpertUse:
        """What windows have asked for so far. Waits for the device."""
        tallies = torch.stack([store.tally for store in self._stores]).sum(0).tolist()
        _, found, fetched, _ = tallies
        return ExpertUse(int(found), int(fetched))

    @property
    def resident_share(self) -> float:
        """Of all routed experts, those on the device."""
        return sum(s.resident for s in self._stores) / sum(s.count for s in self._stores)

    def counts(self) -> tuple[int, int]:
        """`use`, found and fetched."""
        use = self.use()
        return use.found, use.fetched

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
        self._stores.append(store)
        return dict(zip(_FIELDS, (store.gate, store.up, store.down), strict=True))
