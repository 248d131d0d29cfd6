"""Attention over the blocks that its selector chooses: queries and keys of both in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels import attention, indexer
from engine.kernels.attention_scores import prepare_heads
from engine.kernels.dependent import launch_options
from engine.kernels.dots import shuffles
from engine.kernels.indexer import prepare_index
from engine.kernels.inputs import Input
from engine.kernels.kv_cache import KvCache
from engine.models.config import AttentionConfig, IndexerConfig
from engine.rows import Rows


@triton.jit(
    do_not_specialize=["context", "length", "blocks"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS"],
)
def prepare_both_kernel(
    Q, K_ROWS, V_ROWS, Q_NORM, K_NORM, TABLE, KEYS, KEY_SCALES, VALUES, VALUE_SCALES, SLOTS,
    POSITIONS, QUERIES, TOP, INDEX_Q, INDEX_K, INDEX_Q_NORM, INDEX_K_NORM, RAW, BLOCK_KEYS,
    INDEX_QUERIES, eps, context, length, blocks, H: tl.constexpr, KV: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, CODED: tl.constexpr, INDEX_H: tl.constexpr,
    INDEX_WIDTH: tl.constexpr, RATIO: tl.constexpr, HALF: tl.constexpr, M: tl.constexpr,
    INDEX_PARTS: tl.constexpr, SHUFFLE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (INDEX_PARTS + parts, rows): those of the selector first, they take longer."""
    part = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    if part < INDEX_PARTS:
        prepare_index(
            part, row, INDEX_Q, INDEX_K, INDEX_Q_NORM, INDEX_K_NORM, TABLE, RAW, BLOCK_KEYS, SLOTS,
            POSITIONS, INDEX_QUERIES, eps, length, blocks, INDEX_H, RATIO, INDEX_WIDTH, HALF, M,
            SHUFFLE, PDL,
        )  # fmt: skip
    else:
        prepare_heads(
            part - INDEX_PARTS, row, Q, K_ROWS, V_ROWS, Q_NORM, K_NORM, TABLE, KEYS, KEY_SCALES,
            VALUES, VALUE_SCALES, SLOTS, POSITIONS, QUERIES, TOP, eps, context, H, KV, K, V, HALF,
            CODED, M, SHUFFLE, PDL,
        )  # fmt: skip


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
) -> Input:
    """`attention` over the blocks of `select_blocks`.

    projected: queries, keys and values of attention, queries and keys of the selector. norms: of
    queries and keys of attention, then of the selector. The rest as the two operators take it.
    """
    q, k, v, index_q, index_k = (x.contiguous() for x in projected)
    prepared = attention.room_for_queries(rows.count, config, q.device)
    queries = torch.empty(rows.count, index.heads, index.key_length, device=q.device)
    if rows.count:
        parts = indexer.parts_of(index)
        prepare_both_kernel[(parts + attention.parts_of(config), rows.count)](
            q, k, v, *norms[:2], table, *attention.cells_of(cache), rows.slots, rows.positions,
            *prepared, index_q, index_k, *norms[2:], raw_keys, block_keys, queries, eps,
            cache.keys.values.shape[1], raw_keys.shape[1], block_keys.shape[1],
            INDEX_H=index.heads, INDEX_WIDTH=index.key_length, RATIO=ratio, HALF=table.shape[2],
            INDEX_PARTS=parts, **attention.shape_of(cache, config), SHUFFLE=shuffles(q),
            num_warps=1, **launch_options(q),
        )  # fmt: skip
    selected = indexer.choose(index_k, queries, raw_keys, block_keys, ratio, index, rows)
    return attention.attend(q, prepared, cache, selected, ratio, config, rows)
