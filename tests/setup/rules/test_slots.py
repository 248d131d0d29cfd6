"""What a slot costs and how many are recommended: every published example."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import NAMED_KV_FORMATS
from setup.models.catalogue import ModelRow, catalogue, find_row
from setup.rules.slots import cache_gb, parallel_reason, recommend_parallel, slot_gb

QWEN36 = "Qwen3.6-UD-IQ4_XS"


def recommended(
    name: str,
    cards: list[float],
    context: int = 32_768,
    kv: str = "int8",
    streaming: bool = False,
) -> int:
    return recommend_parallel(find_row(name), cards, context, kv, streaming)


@pytest.mark.parametrize(
    ("context", "int8", "q4_0"),
    [
        # context * 12 * 1056 / 1e9 + 0.17, and with 576
        (8_192, 0.274, 0.227),  # 0.1038 + 0.17; 0.0566 + 0.17
        (32_768, 0.585, 0.396),  # 0.4152 + 0.17; 0.2265 + 0.17
        (65_536, 1.000, 0.623),  # 0.8305 + 0.17; 0.4530 + 0.17
        (131_072, 1.831, 1.076),  # 1.6609 + 0.17; 0.9060 + 0.17
        (204_800, 2.765, 1.586),  # 2.5952 + 0.17; 1.4156 + 0.17
        (262_144, 3.492, 1.982),  # 3.3219 + 0.17; 1.8119 + 0.17
    ],
)
def test_a_slot(context: int, int8: float, q4_0: float) -> None:
    row = find_row("Q2_0")
    assert slot_gb(row, context, "int8", False) == pytest.approx(int8, abs=0.0006)
    assert slot_gb(row, context, "q4_0", False) == pytest.approx(q4_0, abs=0.0006)
    # streamed: 32768 tokens on the card, or all when there are fewer
    window = min(context, 32_768)
    for kv in ("int8", "q4_0"):
        assert slot_gb(row, context, kv, True) == slot_gb(row, window, kv, False)


def test_a_measured_slot() -> None:
    # measured 0.60 GB at 32K int8; the rule says 0.585
    assert slot_gb(find_row("Q2_0"), 32_768, "int8", False) == pytest.approx(0.59, abs=0.03)


@pytest.mark.parametrize("kv", NAMED_KV_FORMATS)
def test_every_format_but_q4_0_is_charged_as_int8(kv: str) -> None:
    row = find_row("IQ3_S")
    charged = "q4_0" if kv == "q4_0" else "int8"
    assert slot_gb(row, 65_536, kv, False) == slot_gb(row, 65_536, charged, False)


def test_qwen36_costs_what_its_own_shapes_say() -> None:
    # 32768 * 10 * 1056 / 1e9 = 0.346, and the state of 30 recurrent layers, about 0.1
    assert slot_gb(find_row(QWEN36), 32_768, "int8", False) == pytest.approx(0.45, abs=0.01)
    assert slot_gb(find_row(QWEN36), 131_072, "int8", False) == pytest.approx(1.48, abs=0.01)


def test_room_for_experts() -> None:
    assert cache_gb([24]) == 19
    assert cache_gb([16, 24]) == 30  # 11 + 19
    assert cache_gb([4, 12]) == 7  # a card below its fixed costs has none
    assert cache_gb([]) == 0


@pytest.mark.parametrize(
    ("name", "arena", "two", "three", "four"),
    [
        # 5 + experts / 2 + n * 0.58524; the share of a fifth binds nowhere:
        # for 4 slots it asks for 5 + 4 * 0.58524 / 0.2 = 16.70
        ("IQ1_M", 23.4, 17.87, 18.46, 19.04),
        ("Q2_0", 34.0, 23.17, 23.76, 24.34),
        ("IQ2_XS", 35.5, 23.92, 24.51, 25.09),
        ("IQ3_XXS", 42.9, 27.62, 28.21, 28.79),
        ("IQ3_S", 50.3, 31.32, 31.91, 32.49),
        ("UD-IQ4_XS", 59.5, 35.92, 36.51, 37.09),
        ("UD-Q4_K_XL", 77.0, 44.67, 45.26, 45.84),
    ],
)
def test_both_sides_of_every_threshold(
    name: str, arena: float, two: float, three: float, four: float
) -> None:
    assert find_row(name).arena_gb == arena
    for count, card in ((2, two), (3, three), (4, four)):
        fewer = count - 1 if count > 2 else 0
        # the published thresholds are rounded to 0.01
        assert recommended(name, [card + 0.01]) == count
        assert recommended(name, [card - 0.01]) == fewer
        # each further card costs 5 more in all
        assert recommended(name, [12.0, card + 5.01 - 12.0]) == count
        assert recommended(name, [12.0, card + 4.99 - 12.0]) == fewer


@pytest.mark.parametrize(
    ("name", "cards", "count"),
    [
        # cache = sum(VRAM - 5); needed = experts / 2 + n * 0.585
        ("Q2_0", [12], 0),  # 7 < 17 + 1.17
        ("Q2_0", [16], 0),  # 11
        ("Q2_0", [20], 0),  # 15
        ("Q2_0", [23.9], 3),  # 18.9 >= 17 + 1.76
        ("Q2_0", [24], 3),  # 19 >= 18.76, < 19.34
        ("Q2_0", [32], 4),  # 27
        ("Q2_0", [48], 4),  # 43
        ("Q2_0", [12, 12], 0),  # 14
        ("Q2_0", [16, 16], 4),  # 22 >= 19.34
        ("Q2_0", [16, 24], 4),  # 30
        ("IQ2_XS", [24], 2),  # 19 >= 17.75 + 1.17 = 18.92, < 19.51
        ("IQ2_XS", [23.9], 0),  # 18.9 < 18.92
        ("IQ2_XS", [16, 16], 4),  # 22 >= 17.75 + 2.34
        ("IQ3_XXS", [24], 0),  # 19 < 21.45 + 1.17
        ("IQ3_XXS", [32], 4),  # 27 >= 21.45 + 2.34
        ("IQ3_XXS", [16, 16], 0),  # 22 < 22.62
        ("IQ3_XXS", [24, 24], 4),  # 38
        ("IQ3_S", [24], 0),  # 19 < 25.15 + 1.17
        ("IQ3_S", [31.84], 2),  # 26.84 >= 26.32, < 26.91: a real RTX 5090
        ("IQ3_S", [32.0], 3),  # 27 >= 26.91, < 27.49
        ("IQ3_S", [40], 4),  # 35
        ("IQ3_S", [16, 16], 0),  # 22 < 26.32: a pair needs 36.3 in all
        ("IQ3_S", [16, 24], 4),  # 30 >= 27.49
        ("IQ3_S", [24, 24], 4),  # 38
        ("IQ3_S", [16] * 4, 4),  # 44
        ("IQ3_S", [32] * 4, 4),  # 108
        ("IQ1_M", [16], 0),  # 11 < 11.7 + 1.17
        ("IQ1_M", [20], 4),  # 15 >= 11.7 + 2.34
        ("IQ1_M", [12, 12], 3),  # 14 >= 13.46, < 14.04
        ("UD-IQ4_XS", [32], 0),  # 27 < 29.75 + 1.17
        ("UD-IQ4_XS", [40], 4),  # 35 >= 29.75 + 2.34
        ("UD-IQ4_XS", [24, 24], 4),  # 38
        ("UD-Q4_K_XL", [40], 0),  # 35 < 38.5 + 1.17
        ("UD-Q4_K_XL", [48], 4),  # 43 >= 38.5 + 2.34
        ("Q2_0", [], 0),
        # Qwen3.6, slots of 0.446: 2 need 7.6 + 0.89 = 8.49, 4 need 9.38
        (QWEN36, [8], 0),  # 3
        (QWEN36, [12], 0),  # 7
        (QWEN36, [16], 4),  # 11 >= 9.38; a fifth of it is 2.2 >= 1.78
        (QWEN36, [24], 4),
        # 12.9 / 2 = 6.45; 2 need 7.34, but a fifth of the cache holds 2 from 4.46
        ("Qwen3.6-UD-IQ3_S", [12], 0),  # 7 < 7.34
        ("Qwen3.6-UD-IQ3_S", [12.5], 2),  # 7.5 >= 7.34, a fifth: 1.5 >= 0.89; 3 need 7.79
        ("Qwen3.6-UD-IQ3_S", [16], 4),
    ],
)
def test_worked_examples_at_32k(name: str, cards: list[float], count: int) -> None:
    assert recommended(name, cards) == count


@pytest.mark.parametrize(
    ("name", "cards", "context", "streaming", "count"),
    [
        # a slot at 128K int8: 1.831
        ("Q2_0", [24], 131_072, False, 0),  # a fifth: 3.8 >= 3.66, but 19 - 3.66 = 15.3 < 17
        ("Q2_0", [32], 131_072, False, 2),  # 5.4 >= 3.66 and < 5.49
        ("Q2_0", [40], 131_072, False, 3),  # 7.0 >= 5.49 and < 7.32
        ("Q2_0", [48], 131_072, False, 4),  # 8.6 >= 7.32
        ("Q2_0", [16, 16], 131_072, False, 2),  # 4.4 >= 3.66; 22 - 3.66 = 18.3 >= 17
        ("IQ3_S", [32], 131_072, False, 0),  # 27 - 3.66 = 23.3 < 25.15
        ("IQ3_S", [40], 131_072, False, 3),  # 7.0 >= 5.49; 35 - 5.49 = 29.5
        ("IQ3_S", [24, 24], 131_072, False, 4),  # 7.6 >= 7.32; 38 - 7.32 = 30.7
        # at 256K: 3.492
        ("Q2_0", [32], 262_144, False, 0),  # 5.4 < 6.98
        ("Q2_0", [32], 262_144, True, 4),  # as at 32K
        ("Q2_0", [40], 262_144, False, 2),  # 7.0 >= 6.98
        ("Q2_0", [48], 262_144, False, 2),  # 8.6 < 10.48
        ("Q2_0", [80], 262_144, False, 4),  # 15 >= 13.97
    ],
)
def test_worked_examples_of_longer_contexts(
    name: str, cards: list[float], context: int, streaming: bool, count: int
) -> None:
    assert recommended(name, cards, context, streaming=streaming) == count


CARDS = st.lists(st.floats(2, 200), min_size=1, max_size=4)
ROWS = st.sampled_from(catalogue())
CONTEXTS = st.sampled_from((8_192, 32_768, 131_072, 262_144))


@given(row=ROWS, cards=CARDS)
def test_streamed_contexts_cost_what_32k_costs(row: ModelRow, cards: list[float]) -> None:
    at_32k = recommend_parallel(row, cards, 32_768, "int8", False)
    for context in (32_768, 131_072, 262_144):
        assert recommend_parallel(row, cards, context, "int8", True) == at_32k


@given(row=ROWS, cards=CARDS, context=CONTEXTS, more=st.floats(0, 100))
def test_the_rule_holds_and_more_memory_never_hurts(
    row: ModelRow, cards: list[float], context: int, more: float
) -> None:
    count = recommend_parallel(row, cards, context, "int8", False)
    assert count in (0, 2, 3, 4)
    taken = count * slot_gb(row, context, "int8", False)
    if count:
        assert taken <= 0.2 * cache_gb(cards)
        assert cache_gb(cards) - taken >= row.arena_gb / 2
    assert recommend_parallel(row, [cards[0] + more, *cards[1:]], context, "int8", False) >= count
    assert recommend_parallel(row, cards, context, "q4_0", False) >= count
    assert recommend_parallel(row, cards, context, "int8", True) >= count


def test_the_reason_has_the_sums() -> None:
    assert parallel_reason(find_row("Q2_0"), [24], 32_768, "int8", False) == (
        "parallel 3: the cards have 19.0 GiB for experts; 3 slots of 0.59 GB take 1.76 GB "
        "(at most 3.80 GiB) and leave 17.2 (at least 17.00 GB, half of Q2_0), "
        "with a GB counted as a GiB"
    )
    assert parallel_reason(find_row("IQ3_S"), [16, 16], 32_768, "int8", False) == (
        "parallel 0 (one at a time): the cards have 22.0 GiB for experts; 2 slots of 0.59 GB take "
        "1.17 GB (at most 4.40 GiB) and leave 20.8 (at least 25.15 GB, half of IQ3_S), "
        "with a GB counted as a GiB"
    )
