"""Muon for the weight matrices, Adam for everything else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor

from scripts.train.formats import type_of
from scripts.train.geometry import Geometry

TABLES = ("token_embd.weight", "per_layer_token_embd.weight", "output.weight")
ADAM_RATES = {"token_embd.weight": 4e-3, "per_layer_token_embd.weight": 1e-2, "output.weight": 2e-3}
ADAM_RATE, MUON_RATE, MUON_DECAY = 2e-3, 0.015, 0.02
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Newton-Schulz steps towards an orthogonal matrix


def orthogonal(update: Tensor, steps: int = 5) -> Tensor:
    """An almost orthogonal matrix near each of [B, N, K], in bfloat16 products on a GPU."""
    a, b, c = COEFFICIENTS
    x = update.bfloat16() if update.is_cuda else update
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return (x.mT if tall else x).float()


class Optimiser:
    """Steps all weights; matrices of one shape are stacked and stepped together."""

    def __init__(self, weights: Mapping[str, Tensor], geometry: Geometry) -> None:
        matrices: dict[str, Tensor] = {}
        rest: dict[str, Tensor] = {}
        for name, value in weights.items():
            plain = name in TABLES or type_of(name, value.dim(), geometry) == "F32"
            (rest if plain else matrices)[name] = value
        shapes: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
        for value in matrices.values():
            shapes[tuple(value.shape[-2:])].append(value)
        self.groups = list(shapes.values())
        self.momenta = [[torch.zeros_like(w) for w in group] for group in self.groups]
        settings = [
            {
                "params": [w],
                "lr": ADAM_RATES.get(n, ADAM_RATE),
                "rate": ADAM_RATES.get(n, ADAM_RATE),
            }
            for n, w in rest.items()
        ]
        self.adam = torch.optim.Adam(settings, betas=(0.9, 0.97), eps=1e-10, foreach=True)
        self.decays = [w for n, w in rest.items() if n.endswith("ssm_a")]

    @torch.no_grad()
    def step(self, factor: float, momentum: float = 0.95) -> None:
        """One step at `factor` times the full rates; clears the gradients."""
        for group, momenta in zip(self.groups, self.momenta, strict=True):
            self._muon(group, momenta, MUON_RATE * factor, momentum)
        for settings in self.adam.param_groups:
            settings["lr"] = settings["rate"] * factor
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        for decay in self.decays:
            decay.clamp_(max=-1e-3)

    def _muon(self, group: list[Tensor], momenta: list[Tensor], rate: float, beta: float) -> None:
        gradients = [w.grad if w.grad is not None else torch.zeros_like(w) for w in group]
        torch._foreach_lerp_(momenta, gradients, 1 - beta)
        looked = torch._foreach_lerp(gradients, momenta, beta)
        rows, columns = group[0].shape[-2:]
        stacked = torch.cat([x.reshape(-1, rows, columns) for x in looked])
        moved = orthogonal(stacked) * max(1.0, rows / columns) ** 0.5
        parts = moved.split([w.numel() // (rows * columns) for w in group])
        for weight, part in zip(group, parts, strict=True):
            weight.mul_(1 - rate * MUON_DECAY).sub_(part.view_as(weight), alpha=rate)
            weight.grad = None


class Guard:
    """Goes back to the last good weights, at half the rate, when the loss runs away."""

    def __init__(self, weights: Mapping[str, Tensor], slack: float = 1.0) -> None:
        self.weights = weights
        self.slack = slack
        self.factor = 1.0
        self.best = float("inf")
        self.kept = {name: value.detach().clone() for name, value in weights.items()}

    @torch.no_grad()
    def check(self, loss: float) -> None:
        """Takes a copy of the weights when `loss` is fine, puts the copy back when it is not."""
        if loss < self.best + self.slack:
            self.best = min(self.best, loss)
            for name, value in self.weights.items():
                self.kept[name].copy_(value)
            return
        self.factor /= 2
        print(f"loss {loss:.3f}: back to the last good weights, rates times {self.factor}")
        for name, value in self.weights.items():
            value.copy_(self.kept[name])
