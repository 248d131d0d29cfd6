"""Attention over the blocks that its selector chooses."""

from __future__ import annotations

import torch

from engine.models.config import AttentionConfig, IndexerConfig
from engine.reference.attention import attention
from engine.reference.indexer import select_blocks
from engine.reference.kv_cache import KvCache
from engine.rows import Rows


def sparse_attention(
    projected: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    norms: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    table: torch.Tensor,
    cache: KvCache,
    raw_keys: torch.Tensor,
    block_keys: torch.Tensor,
    ratio: int,
    config: AttentionConfig,
    index: IndexerConfig,
    eps: float,
    rows: Rows,
) -> torch.Tensor:
    """`attention` over the blocks of `select_blocks`.

    projected: queries, keys and values of attention, queries and keys of the selector. norms: of
    queries and keys of attention, then of the selector. The rest as the two operators take it.
    """
    selected = select_blocks(
        *projected[3:], *norms[2:], table, raw_keys, block_keys, ratio, index, eps, rows
    )
    given = (*projected[:3], *norms[:2], table, cache, selected)
    return attention(*given, ratio, config, eps, rows)
