"""The kernels of attention and of its block selector pass Triton's compiler."""

import re
from pathlib import Path
from typing import Any

import torch

from engine.models.config import AttentionConfig, IndexerConfig
from engine.rows import rows_of
from tests.engine.kernels.compiling import assert_compiles

CONFIG = AttentionConfig(8, 2, 256, 32, 64, 1e7)
INDEXER = IndexerConfig(4, 128, 2048)
TABLE = torch.ones(4096, 2, 32)


def _attend(kind: Any, ratio: int) -> None:
    from engine.kernels.attention import attention
    from engine.kernels.kv_cache import KvCache

    cache = KvCache.empty(kind, 1, 4096, 2, 256, 32, device="cpu")
    selected = torch.zeros(1, 512, dtype=torch.int32) if ratio else None
    norm = torch.ones(256)
    given = torch.ones(1, 8 * 512), torch.ones(1, 512), torch.ones(1, 64), norm, norm, TABLE
    rows = rows_of([(0, 4000, 1, 1)])
    attention(*given, cache, selected, ratio, CONFIG, 1e-6, rows)


def operators(kernels: list[Any]) -> None:
    """One row and many, without assembly."""
    from engine.kernels import attention
    from engine.kernels.indexer import select_blocks

    _attend("fp16", 4)
    attention.WHOLE_PROGRAMS = 1
    _attend("int8", 0)
    norm, keys = torch.ones(128), torch.ones(1, 8193, 128)
    ring, rows = torch.ones(1, 7, 128), rows_of([(0, 4000, 1, 1)])
    given = torch.ones(1, 512), torch.ones(1, 128), norm, norm, TABLE
    select_blocks(*given, ring, keys, 4, INDEXER, 1e-6, rows)
    assert len(kernels) == 4 + 3 + 3
    assert not any("fma." in kernel.asm["ptx"] for kernel in kernels)


def lanes(kernels: list[Any]) -> None:
    """With assembly: of a key, eight threads have four lanes each, and nothing moves otherwise."""
    from engine.kernels import attention

    attention.shuffles = lambda tensor: True
    for tiles in (attention.FEW_SCORES, attention.MANY_SCORES):
        attention.FEW_SCORES = tiles
        _attend("int8", 4)
    found = [kernel for kernel in kernels if kernel.name == "scores_kernel"]
    assert len(found) == 2
    for kernel in found:
        code = kernel.asm["ttgir"]
        layouts = re.findall(r"elementwise_inline_asm .*tensor<4x8xf32, (#\w+)> ->", code)
        assert len(layouts) >= 6
        assert len(set(layouts)) == 1
        written = re.search(rf"^{layouts[0]} = (.*)$", code, re.MULTILINE)
        assert written is not None
        assert "sizePerThread = [1, 1], threadsPerWarp = [4, 8]" in written[1]
        assert "order = [1, 0]" in written[1]
        assert "bar.sync" not in kernel.asm["ptx"]
        assert kernel.metadata.shared == 0


def test_compiles(tmp_path: Path) -> None:
    assert_compiles(__name__, "operators", tmp_path)


def test_lanes_lie_where_threads_exchange_them(tmp_path: Path) -> None:
    assert_compiles(__name__, "lanes", tmp_path)
