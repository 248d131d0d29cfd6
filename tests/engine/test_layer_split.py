"""Layer splits: what is taken, what is refused with which words, and balanced shares."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError
from engine.layer_split import (
    balanced_split,
    check_cards,
    even_split,
    parse_layer_split,
    split_example,
)


@pytest.mark.parametrize(
    ("value", "cards", "expected"),
    [
        # auto: nothing said, or the word in any case
        (None, 4, None),
        ("", 4, None),
        ("  ", 4, None),
        ("auto", 4, None),
        (" AUTO ", 2, None),
        # the first layer of each later card
        ("24", 2, (24,)),
        (24, 2, (24,)),
        ([24], 2, (24,)),
        ((24,), 2, (24,)),
        ("16,32", 3, (16, 32)),
        ("13,26,39", 4, (13, 26, 39)),
        (" 13 , 26 ,39 ", 4, (13, 26, 39)),
        ([24, 36, 42], 4, (24, 36, 42)),
        # the ends: 2 layers on the first card, 1 on the last
        ("2", 2, (2,)),
        ("47", 2, (47,)),
        ("2,3,4", 4, (2, 3, 4)),
        # one card or none: the key is ignored, whatever it says
        ("24,36", 1, None),
        (True, 1, None),
        ("12", 0, None),
    ],
)
def test_taken(value: object, cards: int, expected: tuple[int, ...] | None) -> None:
    assert parse_layer_split(value, cards, 48) == expected


@pytest.mark.parametrize(
    ("value", "cards", "shown", "fault"),
    [
        ("24,16,12,12", 4, '"24,16,12,12"', "4 numbers for 4 GPUs, needed: 3"),  # counts per card
        ("24,36", 4, '"24,36"', "2 numbers for 4 GPUs, needed: 3"),
        ("24", 4, '"24"', "1 number for 4 GPUs, needed: 3"),
        (24, 3, "24", "1 number for 3 GPUs, needed: 2"),
        ([], 2, "[]", "0 numbers for 2 GPUs, needed: 1"),
        ("1,20,30", 4, '"1,20,30"', "the first GPU needs at least 2 layers"),
        ("0", 2, '"0"', "the first GPU needs at least 2 layers"),
        (-3, 2, "-3", "the first GPU needs at least 2 layers"),
        ("24,16,36", 4, '"24,16,36"', "the numbers do not rise"),
        ("24,24", 3, '"24,24"', "the numbers do not rise"),
        ("48", 2, '"48"', "the model has 48 layers, counted from 0, so 47 is the last"),
        ("16,999999999", 3, '"16,999999999"', "so 47 is the last"),
        ([24.5, 30, 40], 4, "[24.5, 30, 40]", "not a list of whole numbers"),
        ([True], 2, "[true]", "not a list of whole numbers"),
        (True, 2, "true", "not a list of whole numbers"),
        (24.0, 2, "24.0", "not a list of whole numbers"),
        (["24"], 2, '["24"]', "not a list of whole numbers"),
        ("half", 2, '"half"', "not a list of whole numbers"),
        ("24,", 3, '"24,"', "not a list of whole numbers"),
        ("24 36", 3, '"24 36"', "not a list of whole numbers"),
        ("+24", 2, '"+24"', "not a list of whole numbers"),
        ("2_4", 2, '"2_4"', "not a list of whole numbers"),
        ("٢٤", 2, '"٢٤"', "not a list of whole numbers"),
        ("9" * 5000, 2, '"999', "not a list of whole numbers"),
        ({"a": 1}, 2, '{"a": 1}', "not a list of whole numbers"),
    ],
)
def test_refused(value: object, cards: int, shown: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_layer_split(value, cards, 48)
    message = refused.value.message
    example = {2: "24", 3: "16,32", 4: "12,24,36"}[cards]
    assert message.startswith(f"layer_split is {shown}")
    assert fault in message
    assert f'for {cards} GPUs and 48 layers for example "{example}"' in message
    assert "not counts per card" in message
    assert example in refused.value.hint
    assert len(message) < 420


@pytest.mark.parametrize(
    ("cards", "layers", "example"),
    [
        # round(layers * (i + 1) / cards)
        (2, 48, "24"),
        (3, 48, "16,32"),
        (4, 48, "12,24,36"),
        (5, 48, "10,19,29,38"),  # 9.6, 19.2, 28.8, 38.4
        (8, 48, "6,12,18,24,30,36,42"),
        (2, 40, "20"),
        (3, 4, "2,3"),  # 1.33 and 2.67: the first card keeps 2 layers, the numbers rise
    ],
)
def test_example(cards: int, layers: int, example: str) -> None:
    assert split_example(cards, layers) == example


@pytest.mark.parametrize(
    ("layers", "cards", "head", "expected"),
    [
        # round((layers + head) / cards * (i + 1))
        (48, 4, 4, (13, 26, 39)),  # 52 / 4 = 13; the last card has 9 layers and the head
        (48, 2, 4, (26,)),  # 52 / 2
        (48, 3, 4, (17, 35)),  # 17.33, 34.67
        (48, 4, 0, (12, 24, 36)),
        (48, 1, 4, ()),
        (40, 2, 4, (22,)),  # 44 / 2
        (48, 4, 40, (22, 44, 47)),  # 88 / 4 = 22, 44, 66: the last card keeps a layer
        (5, 4, 4, (2, 3, 4)),  # 2.25, 4.5, 6.75
    ],
)
def test_balanced(layers: int, cards: int, head: float, expected: tuple[int, ...]) -> None:
    assert balanced_split(layers, cards, head) == expected


@given(st.integers(2, 80), st.integers(1, 64), st.floats(0, 200))
def test_every_balanced_split_and_example_is_taken(layers: int, cards: int, head: float) -> None:
    if cards > layers - 1:  # 2 layers on the first card, 1 on each other
        with pytest.raises(ConfigError, match=f"{layers} layers cannot be split over {cards}"):
            balanced_split(layers, cards, head)
        return
    split = balanced_split(layers, cards, head)
    assert parse_layer_split(list(split), cards, layers) == (split or None)
    assert parse_layer_split(split_example(cards, layers), cards, layers) == (
        even_split(layers, cards) or None
    )


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(JSON | st.lists(st.integers(0, 60), max_size=5), st.integers(2, 6))
def test_anything_is_taken_whole_or_refused(value: object, cards: int) -> None:
    try:
        split = parse_layer_split(value, cards, 48)
    except ConfigError:
        return
    if split is None:
        assert value is None or str(value).strip().lower() in ("", "auto")
        return
    assert len(split) == cards - 1
    assert split[0] >= 2
    assert sorted(set(split)) == list(split)
    assert split[-1] < 48


def test_too_many_cards() -> None:
    check_cards(47, 48)
    with pytest.raises(ConfigError, match="48 layers cannot be split over 48 cards: at most 47"):
        check_cards(48, 48)
    with pytest.raises(ConfigError, match="at most 3"):
        parse_layer_split("1,2,3,4", 5, 4)
