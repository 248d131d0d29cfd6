"""The indexer of sparse attention: block scores, selection, and what trains it."""

from __future__ import annotations

import torch
import torch.nn.functional as fn
from torch import Tensor

from scripts.train.geometry import Geometry
from scripts.train.layers import Weights, linear, rms, rotate


def block_scores(x: Tensor, w: Weights, geometry: Geometry) -> Tensor:
    """Scores [B, T, N] of the N = T // ratio whole blocks for every query, not yet masked."""
    ratio, dim, eps = geometry.index_ratio, geometry.index_dim, geometry.eps
    length = x.shape[1] // ratio * ratio
    raw = linear(x, w["indexer.k_proj.weight"])[:, :length]
    pooled = rms(raw.unflatten(1, (-1, ratio)).mean(2), w["indexer.k_norm.weight"], eps)
    starts = torch.arange(0, length, ratio, device=x.device)
    keys = rotate(pooled.unsqueeze(2), starts, geometry).squeeze(2)
    q = linear(x, w["indexer.q_proj.weight"]).unflatten(-1, (geometry.index_heads, dim))
    positions = torch.arange(x.shape[1], device=x.device)
    q = rotate(rms(q, w["indexer.q_norm.weight"], eps), positions, geometry)
    scores = torch.zeros(*x.shape[:2], keys.shape[1], device=x.device)
    for head in range(geometry.index_heads):
        scores = scores + fn.relu(q[:, :, head] @ keys.transpose(1, 2))
    return scores * dim**-0.5


def complete(length: int, ratio: int, device: torch.device) -> Tensor:
    """[T, N] bool: block n is complete for the query at position t."""
    ends = torch.arange(1, length // ratio + 1, device=device) * ratio
    return ends <= torch.arange(1, length + 1, device=device).unsqueeze(-1)


def selection(scores: Tensor, geometry: Geometry, exact: bool = True) -> Tensor:
    """Attention mask [B, 1, T, T] (bool) of the best blocks and each query's open tail.

    Equal scores go to the lowest block, as at inference; any may win where not `exact`.
    """
    batch, length, count = scores.shape
    ratio = geometry.index_ratio
    whole = complete(length, ratio, scores.device)
    visible, budget = scores.masked_fill(~whole, -1.0), min(count, geometry.index_budget // ratio)
    if exact:
        ranked = torch.sort(visible, dim=-1, descending=True, stable=True).indices[..., :budget]
    else:
        ranked = visible.topk(budget, dim=-1, sorted=False).indices
    chosen = torch.zeros(batch, length, count, dtype=torch.bool, device=scores.device)
    chosen = chosen.scatter(-1, ranked, True) & whole
    cells = fn.pad(chosen.repeat_interleave(ratio, dim=-1), (0, length - count * ratio))
    positions = torch.arange(length, device=scores.device)
    open_from = (positions + 1) // ratio * ratio
    tail = (positions >= open_from.unsqueeze(-1)) & (positions <= positions.unsqueeze(-1))
    return (cells | tail).unsqueeze(1)


def selection_loss(
    scores: Tensor, q: Tensor, k: Tensor, rows: Tensor, geometry: Geometry
) -> Tensor:
    """KL from the dense attention's share of each whole block to the indexer's softmax.

    Only the query positions `rows` are looked at. q, k: [B, H, T, d], used without gradient.
    """
    ratio, length = geometry.index_ratio, k.shape[2]
    with torch.no_grad():
        logits = q[:, :, rows] @ k.transpose(-1, -2) * geometry.head_dim**-0.5
        causal = torch.arange(length, device=k.device) <= rows.unsqueeze(-1)
        share = logits.masked_fill(~causal, float("-inf")).softmax(-1).mean(1)
        share = share[..., : length // ratio * ratio].unflatten(-1, (-1, ratio)).sum(-1)
        whole = complete(length, ratio, k.device)[rows]
        share = share * whole
        share = share / share.sum(-1, keepdim=True).clamp_min(1e-6)
    guess = scores[:, rows].masked_fill(~whole, -1e4).log_softmax(-1)
    return (share * (share.clamp_min(1e-9).log() - guess)).sum(-1).mean()
