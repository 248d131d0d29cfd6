"""Memory sums against the published sizes of Qwen3.8-Flash-Next and against real arrays."""

from __future__ import annotations

import pytest

from engine.memory import plan_memory, token_bytes
from engine.model_info import read_model_info
from tests.machines import FIXTURES, flash_next_sizes


@pytest.mark.parametrize(
    ("kv", "bytes_of_13_layers"), [("int8", 13_728), ("fp16", 26_624), ("f32", 53_248)]
)
def test_bytes_of_a_token_are_the_published_ones(kv: str, bytes_of_13_layers: int) -> None:
    info = flash_next_sizes(index_bytes_per_token=0)
    assert token_bytes(info, kv) == bytes_of_13_layers  # type: ignore[arg-type]


def test_indexer_keys_are_counted() -> None:
    assert token_bytes(flash_next_sizes(), "int8") == 13_728 + 1536


def test_the_parts_add_up() -> None:
    info = flash_next_sizes()
    plan = plan_memory(
        info,
        kv="int8",
        activations="int8",
        slots=3,
        max_context=1000,
        prompt_cache=2,
        available_bytes=10**10,
    )
    rows = dict(plan.rows())
    total, available = rows.pop("total"), rows.pop("available")
    assert total == sum(rows.values()) == plan.total_bytes
    assert available == 10**10
    assert plan.slot_bytes == 1000 * token_bytes(info, "int8") + 3 * info.state_bytes


def test_sizes_of_a_model_file() -> None:
    info = read_model_info(FIXTURES / "q4exp-a-q4k.gguf")
    assert (info.architecture, info.vocab_size, info.layers) == ("qwen4exp", 512, 5)
    assert not info.has_drafts
    # Two attention layers with 2 K/V heads of 64.
    assert info.kv_vectors == ((64, 4), (64, 4))
    # A file is its tensors and a small header.
    size = (FIXTURES / "q4exp-a-q4k.gguf").stat().st_size
    assert 0.9 * size < info.stored_bytes <= size
