"""The bytes of a window by hand-made sums."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.floor import Traffic
from engine.model_info import ModelInfo
from engine.models.config import ModelConfig
from engine.synthetic import open_synthetic

GGUF = open_synthetic("qwen3.8-flash-next:iq3_s")
INFO, CONFIG = ModelInfo.from_gguf(GGUF), ModelConfig.from_gguf(GGUF)
TRAFFIC = Traffic(INFO, CONFIG, "int8")


def test_one_row_reads_ten_experts_of_each_layer() -> None:
    weights = INFO.on_card
    expected = weights.dense_bytes + weights.expert_bytes * 10 / 512 + 2 * INFO.state_bytes
    assert TRAFFIC.window_bytes(1, 1, 0) == pytest.approx(expected, rel=1e-6)


def test_rows_share_experts() -> None:
    # Of 512 experts 8 rows choose 512 * (1 - (1 - 10/512)**8) = 74.8 in each of 48 layers: 3,589.
    eight = TRAFFIC.window_bytes(8, 8, 0) - TRAFFIC.window_bytes(8, 0, 0)
    assert eight / (INFO.on_card.expert_bytes / INFO.expert_pairs) == pytest.approx(3589, rel=0.01)


def test_sparse_attention_reads_what_it_selects_and_all_keys_of_its_index() -> None:
    index = INFO.index_bytes_per_token
    near, far = TRAFFIC.window_bytes(1, 1, 4096), TRAFFIC.window_bytes(1, 1, 131_072)
    assert far - near == (131_072 - 4096) * index
    dense = Traffic(INFO, replace(CONFIG, indexer=None), "int8")
    assert dense.window_bytes(1, 1, 4096) > near
