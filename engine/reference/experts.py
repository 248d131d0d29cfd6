"""Mixture of experts: the router, and the routed experts' weighted sum in router order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.reference.compiled import compiled
from engine.reference.lanes import LANES, total
from engine.reference.linear import Activations, linear, multiply
from engine.reference.matrix import Array, Matrix
from engine.reference.scalar import exp, sigmoid, silu


def route(activations: Activations, weight: Matrix, used: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `used` most probable experts of each row, int32 [R, A], and their weights, float32 [R, A].

    Softmax over all experts, best first (equal: the lowest index), weights divided by their sum.
    """
    logits = linear(activations, weight).numpy()
    experts = np.empty((logits.shape[0], used), np.int32)
    weights = np.empty((logits.shape[0], used), np.float32)
    top_experts(logits, experts, weights)
    return torch.from_numpy(experts), torch.from_numpy(weights)


def mixture(
    activations: Activations,
    experts: torch.Tensor,
    weights: torch.Tensor,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
) -> torch.Tensor:
    """Sum over a row's experts, in router order, of weight * down(silu(gate.x) * up.x): [R, D]."""
    chosen = experts.numpy()
    count, used = chosen.shape
    outputs = np.empty((count * used, down.rows), np.float32)
    pairs = np.argsort(chosen.reshape(-1), kind="stable")
    for expert, members in _runs(chosen.reshape(-1), pairs):
        part = activations.take(members // used)
        hidden = gated(part, gate, up, expert)
        result = np.empty((len(members), down.rows), np.float32)
        multiply(hidden, down, expert, result)
        outputs[members] = result
    out = np.empty((count, down.rows), np.float32)
    add_in_order(outputs.reshape(count, used, -1), weights.numpy(), out)
    return torch.from_numpy(out)


def shared_expert(
    activations: Activations, gate: Matrix, up: Matrix, down: Matrix, scalar: Matrix
) -> torch.Tensor:
    """sigmoid(scalar.x) * down(silu(gate.x) * up.x): float32 [R, D]."""
    out = linear(gated(activations, gate, up, 0), down)
    scale_rows(out.numpy(), linear(activations, scalar).numpy())
    return out


def gated(activations: Activations, gate: Matrix, up: Matrix, expert: int) -> Activations:
    """silu(gate.x) * up.x of one expert, float32 [R, F]."""
    rows = activations.array.shape[0]
    g = np.empty((rows, gate.rows), np.float32)
    u = np.empty((rows, up.rows), np.float32)
    multiply(activations, gate, expert, g)
    multiply(activations, up, expert, u)
    silu_times(g, u)
    return Activations(torch.from_numpy(g))


def _runs(chosen: Array, pairs: Array) -> list[tuple[int, Array]]:
    """(expert, its row-and-rank pairs in ascending order) for every expert that is used."""
    ids = chosen[pairs]
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    return [
        (int(ids[i]), part) for i, part in zip(starts, np.split(pairs, starts[1:]), strict=True)
    ]


@compiled
def top_experts(logits: Any, experts: Any, weights: Any) -> None:
    """As `route`, on arrays."""
    lanes = np.empty(LANES, np.float32)
    p = np.empty(logits.shape[1], np.float32)
    for r in range(logits.shape[0]):
        maximum = logits[r].max()
        for e in range(p.size):
            p[e] = exp(logits[r, e] - maximum)
        sum_of_all = total(p, lanes)
        for e in range(p.size):
            p[e] = p[e] / sum_of_all
        chosen = np.float32(0)
        for rank in range(experts.shape[1]):
            best = 0
            for e in range(1, p.size):
                if p[e] > p[best]:
                    best = e
            experts[r, rank] = best
            weights[r, rank] = p[best]
            chosen += p[best]
            p[best] = np.float32(-1)
        for rank in range(experts.shape[1]):
            weights[r, rank] = weights[r, rank] / chosen


@compiled
def silu_times(gate: Any, up: Any) -> None:
    """gate = silu(gate) * up, in place."""
    for r in range(gate.shape[0]):
        g = gate[r]
        u = up[r]
        for i in range(g.size):
            g[i] = silu(g[i]) * u[i]


@compiled
def add_in_order(outputs: Any, weights: Any, out: Any) -> None:
    """out[r] = sum over ranks, in order, of weights[r, a] * outputs[r, a]."""
    for r in range(out.shape[0]):
        target = out[r]
        for a in range(weights.shape[1]):
            w = weights[r, a]
            y = outputs[r, a]
            for d in range(target.size):
                target[d] = w * y[d] if a == 0 else target[d] + w * y[d]


@compiled
def scale_rows(x: Any, scalar: Any) -> None:
    """x[r] *= sigmoid(scalar[r]), in place. float32 [R, D], [R, 1]."""
    for r in range(x.shape[0]):
        s = sigmoid(scalar[r, 0])
        row = x[r]
        for d in range(row.size):
            row[d] = s * row[d]
