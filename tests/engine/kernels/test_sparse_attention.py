"""Attention and its selector together: the same bits as one after the other."""

import torch

from engine.kernels.attention import attention
from engine.kernels.indexer import select_blocks
from engine.kernels.kv_cache import KvCache
from engine.kernels.sparse_attention import sparse_attention
from engine.models.config import AttentionConfig, IndexerConfig
from engine.reference.rotary import rotary_table
from engine.rows import rows_of
from tests.engine.reference.checks import same_bits

CONFIG = AttentionConfig(2, 1, 32, 32, 8, 1e4)
INDEX = IndexerConfig(2, 32, 8)
TABLE = rotary_table(64, 8, 1e4)


def test_same_bits_and_states() -> None:
    """A row that completes a block, and one that sees more blocks than its budget."""
    random = torch.Generator().manual_seed(0)
    rows = rows_of([(0, 3, 1, 1), (1, 40, 2, 1)])
    projected = tuple(torch.randn(3, n, generator=random) for n in (128, 32, 32, 64, 32))
    norms = tuple(torch.linspace(0.5, top, 32) for top in (1.0, 2.0, 3.0, 4.0))
    keys = torch.randn(2, 7, 32, generator=random), torch.randn(2, 17, 32, generator=random)
    results = []
    for together in (False, True):
        cache = KvCache.empty("f32", 2, 64, 1, 32, 32, device="cpu")
        raw, blocks = (x.clone() for x in keys)
        if together:
            out = sparse_attention(
                projected, norms, TABLE, cache, raw, blocks, 4, CONFIG, INDEX, 1e-6, rows
            )
        else:
            index = (*projected[3:], *norms[2:], TABLE, raw, blocks)
            selected = select_blocks(*index, 4, INDEX, 1e-6, rows)
            given = (*projected[:3], *norms[:2], TABLE, cache, selected)
            out = attention(*given, 4, CONFIG, 1e-6, rows)
        results.append((out.values, raw, blocks, cache.keys.values, cache.values.values))
    for one, other in zip(*results, strict=True):
        assert same_bits(one, other)
