"""Mixture of experts: router, routed experts in router order, shared expert."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.models import weights
from engine.reference.compiled import compiled
from engine.reference.hyper_connections import add_into
from engine.reference.lanes import LANES, total
from engine.reference.linear import linear, product
from engine.reference.matrix import Matrix
from engine.reference.scalar import exp, sigmoid, silu


def mixture_into(
    residual: torch.Tensor,
    shares: torch.Tensor | None,
    x: torch.Tensor,
    w: weights.Experts,
    used: int,
) -> None:
    """Adds the routed experts' and the shared expert's output to the residual, as `add_into`."""
    experts, probabilities = route(x, w.ffn_gate_inp, used)
    routed = mixture(x, experts, probabilities, w.ffn_gate_exps, w.ffn_up_exps, w.ffn_down_exps)
    shared = shared_expert(
        x, w.ffn_gate_shexp, w.ffn_up_shexp, w.ffn_down_shexp, w.ffn_gate_inp_shexp
    )
    add_into(residual, shares, routed + shared)


def route(x: torch.Tensor, weight: Matrix, used: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `used` most probable experts of each row, int32 [R, A]; their weights, float32 [R, A].

    Softmax over all experts, best first (equal: the lowest index), weights divided by their sum.
    x: float32 [R, D].
    """
    experts = np.empty((x.shape[0], used), np.int32)
    weights = np.empty((x.shape[0], used), np.float32)
    top_experts(linear(x, weight).numpy(), experts, weights)
    return torch.from_numpy(experts), torch.from_numpy(weights)


def mixture(
    x: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
) -> torch.Tensor:
    """Sum over a row's experts, in router order, of weight * down(silu(gate.x) * up.x): [R, D]."""
    out = np.empty((x.shape[0], down.rows), np.float32)
    chosen = experts.numpy()
    pairs = np.argsort(chosen.reshape(-1), kind="stable")
    mix(x.numpy(), chosen, weights.numpy(), pairs, gate, up, down, out)
    return torch.from_numpy(out)


def shared_expert(
    x: torch.Tensor, gate: Matrix, up: Matrix, down: Matrix, scalar: Matrix
) -> torch.Tensor:
    """sigmoid(scalar.x) * down(silu(gate.x) * up.x): float32 [R, D]."""
    # A mixture of one expert: the same operations, compiled once.
    weights = linear(x, scalar)
    sigmoid_rows(weights.numpy())
    return mixture(x, torch.zeros(weights.shape, dtype=torch.int32), weights, gate, up, down)


@compiled
def top_experts(logits: Any, experts: Any, weights: Any) -> None:
    """As `route`, on arrays, from the router's outputs, float32 [R, E]."""
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
def sigmoid_rows(x: Any) -> None:
    """x = sigmoid(x), in place. float32 [R, 1]."""
    for r in range(x.shape[0]):
        x[r, 0] = sigmoid(x[r, 0])


@compiled
def mix(
    x: Any, chosen: Any, weights: Any, pairs: Any, gate: Any, up: Any, down: Any, out: Any
) -> None:
    """As `mixture`, on arrays. `pairs`: flat indices into `chosen`, sorted by expert.

    An expert is read once for all its rows; the outputs are added afterwards, in router order.
    """
    rows, used = chosen.shape
    outputs = np.empty((rows * used, out.shape[1]), np.float32)
    first = 0
    while first < pairs.size:
        index: Any = np.int64(chosen[pairs[first] // used, pairs[first] % used])
        last = first
        while last < pairs.size and chosen[pairs[last] // used, pairs[last] % used] == index:
            last += 1
        members = np.empty((last - first, x.shape[1]), np.float32)
        for i in range(first, last):
            members[i - first] = x[pairs[i] // used]
        g = np.empty((last - first, gate.rows), np.float32)
        u = np.empty((last - first, up.rows), np.float32)
        product(members, gate, index, g)
        product(members, up, index, u)
        for r in range(g.shape[0]):
            row, other = g[r], u[r]
            for i in range(row.size):
                row[i] = silu(row[i]) * other[i]
        y = np.empty((last - first, out.shape[1]), np.float32)
        product(g, down, index, y)
        for i in range(first, last):
            outputs[pairs[i]] = y[i - first]
        first = last
    for r in range(rows):
        target = out[r]
        for a in range(used):
            w = weights[r, a]
            z = outputs[r * used + a]
            for d in range(target.size):
                target[d] = w * z[d] if a == 0 else target[d] + w * z[d]
