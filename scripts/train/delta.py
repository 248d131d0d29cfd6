"""GatedDeltaNet over whole sequences, in chunks that run in parallel."""

from __future__ import annotations

import torch
import torch.nn.functional as fn
from torch import Tensor

LEAF = 16


def unit_lower_inverse(strict: Tensor) -> Tensor:
    """Inverse of I + strict for strictly lower triangular [..., C, C], C = 16 * 2^n or less.

    Leaves of 16 by a finite Neumann product, then 2x2 block inversion: only matrix products, and
    the powers stay small enough for float32.
    """
    size = strict.shape[-1]
    leaf = min(size, LEAF)
    count = size // leaf
    tiles = strict.unflatten(-1, (count, leaf)).unflatten(-3, (count, leaf))
    power = -torch.diagonal(tiles, dim1=-4, dim2=-2).movedim(-1, -3)
    inverse = power + torch.eye(leaf, device=strict.device, dtype=strict.dtype)
    span = 2
    while span < leaf:
        power = power @ power
        inverse = inverse + inverse @ power
        span *= 2
    while leaf < size:
        corners = [
            strict[..., i + leaf : i + 2 * leaf, i : i + leaf] for i in range(0, size, 2 * leaf)
        ]
        upper, lower = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        corner = -(lower @ torch.stack(corners, dim=-3) @ upper)
        top = torch.cat([upper, torch.zeros_like(upper)], dim=-1)
        inverse = torch.cat([top, torch.cat([corner, lower], dim=-1)], dim=-2)
        leaf *= 2
    return inverse[..., 0, :, :]


def gated_delta(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, chunk: int = 128
) -> Tensor:
    """Outputs [B, T, H, D] of the gated delta rule from a zero state.

    q, k, v: [B, T, H, D], q and k normalised, q scaled; decay (log) and beta: [B, T, H].
    """
    length = q.shape[1]
    chunk = min(chunk, length) if length < LEAF else chunk
    padding = -length % chunk
    parts = _prepare(
        *(_chunks(x, chunk, padding) for x in (q, k, v)),
        *(_chunks(x.unsqueeze(-1), chunk, padding).squeeze(-1) for x in (decay, beta)),
    )
    out = _recur(*parts)
    return out.flatten(2, 3)[:, :, :length].transpose(1, 2)


def _chunks(x: Tensor, chunk: int, padding: int) -> Tensor:
    x = fn.pad(x.transpose(1, 2), (0, 0, 0, padding))
    return x.unflatten(2, (-1, chunk))


def _prepare(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    """Everything of a chunk that does not need the state before it."""
    total = decay.cumsum(-1)
    ratio = (total.unsqueeze(-1) - total.unsqueeze(-2)).tril().exp().tril()
    weighted = k * beta.unsqueeze(-1)
    strict = (weighted @ k.transpose(-1, -2) * ratio).tril(-1)
    inverse = unit_lower_inverse(strict)
    fresh = inverse @ (v * beta.unsqueeze(-1))
    erase = inverse @ (weighted * total.exp().unsqueeze(-1))
    inside = (q @ k.transpose(-1, -2)) * ratio
    reach = q * total.exp().unsqueeze(-1)
    last = total[..., -1:]
    keep = k * (last - total).exp().unsqueeze(-1)
    return fresh, erase, inside, reach, keep, last.exp().unsqueeze(-1)


@torch.compiler.disable  # a compiler would unroll it, for minutes
def _recur(
    fresh: Tensor, erase: Tensor, inside: Tensor, reach: Tensor, keep: Tensor, fade: Tensor
) -> Tensor:
    state = fresh.new_zeros(*fresh.shape[:2], erase.shape[-1], fresh.shape[-1])
    outputs = []
    parts = (fresh, erase, inside, reach, keep.mT, fade)
    for new, old, mix, read, write, decay in zip(*(p.unbind(2) for p in parts), strict=True):
        value = new - old @ state
        outputs.append(read @ state + mix @ value)
        state = state * decay + write @ value
    return torch.stack(outputs, dim=2)
