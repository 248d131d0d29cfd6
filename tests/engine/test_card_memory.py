"""What a card holds, by hand-made sums."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.card_memory import CardPlan, plan_cards
from engine.memory import token_bytes, vector_bytes
from tests.machines import flash_next_sizes

GB = 10**9
INFO = flash_next_sizes(
    stored_bytes=84 * GB,
    expert_bytes=50 * GB,
    table_bytes=29 * GB,
    draft_bytes=0,
    expert_pairs=48 * 512,
)


@pytest.mark.parametrize(
    ("kv", "bytes_"),
    [
        ("int8", 1056),  # 4 vectors of 256 codes and 4 scales of 2 bytes
        ("q4_0", 576),  # 4 vectors of 8 blocks of 18 bytes
        ("k8v4", 816),  # 2 * 264 + 2 * 144
        ("fp16", 2048),
        ("f32", 4096),
    ],
)
def test_a_cell_of_two_heads_of_256(kv: str, bytes_: int) -> None:
    assert 2 * vector_bytes(256, kv) + 2 * vector_bytes(256, kv, value=True) == bytes_
    assert token_bytes(INFO, kv) == 13 * bytes_ + 1536


def test_one_card_of_24_gb() -> None:
    (card,) = plan_cards(INFO, [("A", 24 * GB)], (), kv="int8", slots=2, max_context=32_768)
    # 84 - 50 - 29 = 5 GB that every token reads.
    assert card.dense_bytes == pytest.approx(5 * GB, abs=2)
    # 2 slots of 32,768 tokens of 13 * 1056 + 1536 bytes.
    assert card.kv_bytes == 2 * 32_768 * 15_264
    assert card.state_bytes == 2 * 118_038_528
    assert card.buffer_bytes == 1_500_000_000
    assert card.reserve_bytes == 700 * 2**20
    # What is left, in experts of 50e9 / 24576 bytes each.
    left = 24 * GB - card.fixed_bytes
    assert card.resident == left // (50 * GB // 24_576)
    assert 0 <= card.free_bytes < card.expert_bytes


def test_a_window_of_streamed_keys_and_values_and_a_short_chunk() -> None:
    (card,) = plan_cards(
        INFO,
        [("A", 24 * GB)],
        (),
        kv="int8",
        slots=1,
        max_context=262_144,
        kv_resident=32_768,
        prefill=1024,
        reserve_bytes=0,
    )
    assert card.kv_bytes == 32_768 * 15_264
    assert (card.buffer_bytes, card.reserve_bytes) == (750_000_000, 0)


def test_head_and_draft_layer_lie_on_the_last_card() -> None:
    info = flash_next_sizes(
        stored_bytes=86 * GB, expert_bytes=50 * GB, table_bytes=29 * GB, draft_bytes=2 * GB
    )
    first, last = plan_cards(
        info, [("A", 48 * GB), ("B", 48 * GB)], (24,), kv="int8", slots=1, max_context=8192
    )
    assert (first.layers, last.layers) == ((0, 24), (24, 48))
    assert (first.draft_bytes, last.draft_bytes) == (0, 2 * GB)
    # Dense weights 5 GB: 22% head on the last card, the rest halved.
    assert first.dense_bytes == pytest.approx(1.95 * GB, abs=2)
    assert last.dense_bytes == pytest.approx(3.05 * GB, abs=2)
    assert first.experts == last.experts == first.resident == 24 * 512


def test_a_card_that_is_too_small_says_so() -> None:
    (card,) = plan_cards(INFO, [("A", 4 * GB)], (), kv="int8", slots=1, max_context=8192)
    assert not card.fits
    assert card.resident == 0
    assert card.free_bytes < 0


@settings(max_examples=200, deadline=None)
@given(
    vrams=st.lists(st.integers(1, 200 * GB), min_size=1, max_size=4),
    slots=st.integers(1, 64),
    context=st.integers(16, 524_288),
    kv=st.sampled_from(["int8", "q4_0", "k8v4", "fp16"]),
)
def test_a_card_that_fits_is_never_exceeded(
    vrams: list[int], slots: int, context: int, kv: str
) -> None:
    count = len(vrams)
    split = tuple(ceil(48 * i / count) for i in range(1, count))
    cards = [(f"card {i}", vram) for i, vram in enumerate(vrams)]
    plans = plan_cards(INFO, cards, split, kv=kv, slots=slots, max_context=context)
    assert sum(plan.experts for plan in plans) == INFO.expert_pairs
    for plan in plans:
        assert plan.fits == (plan.free_bytes >= 0)
        assert _sum_of(plan) == plan.vram_bytes


def _sum_of(plan: CardPlan) -> int:
    """The rows of the table up to and with what is free."""
    *parts, (last, whole) = plan.rows()
    assert last == "card"
    assert whole == plan.vram_bytes
    return sum(count for _, count in parts)
