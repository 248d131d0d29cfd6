"""How far a text stays from every discrete choice a model makes: experts and indexer blocks.

Two sound implementations differ in the last bits, so a comparison means something only where no
choice hangs on those bits. `choose_lowest_first` also makes transformers break ties our way.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from tests.oracles.shape import Shape


@contextmanager
def choose_lowest_first() -> Iterator[None]:
    """Make `Tensor.topk` take the lowest index among equals, as the engine promises.

    Indexer scores are sums of relu, so exact ties at zero are common, and torch's own order
    among equals is unspecified.
    """
    original = torch.Tensor.topk

    def topk(values: torch.Tensor, k: int, dim: int = -1) -> torch.return_types.sort:
        best = values.sort(dim=dim, descending=True, stable=True)
        return torch.return_types.topk(
            (best.values.narrow(dim, 0, k), best.indices.narrow(dim, 0, k))
        )

    torch.Tensor.topk = topk
    try:
        yield
    finally:
        torch.Tensor.topk = original


def smallest_margin(shape: Shape, model: nn.Module, ids: list[int]) -> float:
    """The smallest gap between the last choice taken and the first one left, over all rows."""
    gaps: list[float] = []
    handles = []
    for layer in model.model.layers:
        handles.append(layer.mlp.gate.register_forward_hook(_router_gap(gaps)))
        indexer = getattr(getattr(layer, "self_attn", None), "indexer", None)
        if indexer is not None:
            hook = _indexer_gap(gaps)
            handles.append(indexer.register_forward_pre_hook(hook, with_kwargs=True))
    model(torch.tensor([ids]), use_cache=False)
    for handle in handles:
        handle.remove()
    return min(gaps)


def _router_gap(gaps: list[float]):
    def hook(router: nn.Module, arguments: object, outputs: tuple[torch.Tensor, ...]) -> None:
        best = outputs[0].sort(dim=-1, descending=True).values
        if router.top_k < router.num_experts:
            gaps.append(float((best[:, router.top_k - 1] - best[:, router.top_k]).min()))

    return hook


def _indexer_gap(gaps: list[float]):
    def hook(indexer: nn.Module, arguments: tuple, keywords: dict) -> None:
        hidden, (cos, sin) = arguments[0][0], arguments[1]
        dots = _block_dots(indexer, hidden, cos[0], sin[0])
        for row, products in enumerate(dots):
            complete = (row + 1) // indexer.compress_ratio
            if complete > indexer.block_topk:
                gaps.append(_gap(products[:, :complete], indexer.block_topk))

    return hook


def _block_dots(
    indexer: nn.Module, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """q.k / sqrt(width) before relu, float32 [T, heads, blocks]."""
    width, ratio = indexer.index_head_dim, indexer.compress_ratio
    rows = indexer.index_qk_proj(hidden).reshape(len(hidden), -1, width)
    query = _rotated(indexer.q_layernorm(rows[:, :-1]), cos[:, None], sin[:, None])
    blocks = len(hidden) // ratio
    means = rows[: blocks * ratio, -1].reshape(blocks, ratio, width).mean(1)
    starts = torch.arange(blocks) * ratio
    key = _rotated(indexer.k_layernorm(means), cos[starts], sin[starts])
    return torch.einsum("thd,bd->thb", query, key) / width**0.5


def _rotated(rows: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turned = cos.shape[-1]
    low, high = rows[..., : turned // 2], rows[..., turned // 2 : turned]
    swapped = torch.cat([-high, low], -1)
    return torch.cat([rows[..., :turned] * cos + swapped * sin, rows[..., turned:]], -1)


def _gap(products: torch.Tensor, taken: int) -> float:
    """Gap at the border of one row. A tie at zero is exact: its gap is how surely it is zero."""
    scores = products.relu().sum(0)
    best = scores.sort(descending=True).values
    if best[taken - 1] > 0:
        return float(best[taken - 1] - best[taken])
    return float(-products[:, scores == 0].max())
