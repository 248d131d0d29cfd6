"""Length of conversations, by card and by RAM, and scaling beyond the trained length."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError
from setup.models.catalogue import ModelRow, catalogue, find_row
from setup.rules.context import (
    CONTEXTS,
    context_need,
    long_context_note,
    ram_context,
    recommend_context,
    rope,
)

QWEN36 = "Qwen3.6-UD-IQ4_XS"


def test_the_menu() -> None:
    assert CONTEXTS == (8192, 32768, 65536, 131072, 204800, 262144, 393216, 524288)


@pytest.mark.parametrize(
    ("name", "ram", "cards", "low_ram", "context"),
    [
        # the published machines
        ("IQ3_XXS", 63.7, [31.8], False, 131_072),
        ("Q2_0", 31.9, [24, 24], True, 131_072),
        ("Q2_0", 47.0, [15.9, 15.9], False, 65_536),
        ("IQ3_XXS", 95.8, [15.9], False, 65_536),
        ("IQ3_XXS", 127.8, [24], False, 131_072),
        ("UD-Q4_K_XL", 63.7, [31.8], False, 32_768),
        ("UD-Q4_K_XL", 31.9, [24], False, 32_768),
        ("UD-Q4_K_XL", 47.0, [15.9], False, 32_768),
        ("UD-Q4_K_XL", 95.8, [15.9], False, 32_768),
        ("UD-Q4_K_XL", 127.8, [24], False, 32_768),
        # both sides of 14 and 20 GiB
        ("Q2_0", 64.0, [13.99], False, 32_768),
        ("Q2_0", 64.0, [14.0], False, 65_536),
        ("Q2_0", 64.0, [19.99], False, 65_536),
        ("Q2_0", 64.0, [20.0], False, 131_072),
        ("UD-IQ4_XS", 64.0, [13.99], False, 8_192),
        ("UD-IQ4_XS", 64.0, [14.0], False, 32_768),
        # the smallest card decides
        ("Q2_0", 64.0, [32, 10], False, 32_768),
        ("Q2_0", 64.0, [24, 16, 24], False, 65_536),
        # Qwen3.6 on a very small card
        (QWEN36, 32.0, [5.49], False, 8_192),
        (QWEN36, 32.0, [5.5], False, 32_768),
        (QWEN36, 32.0, [24], False, 131_072),
        ("Q2_0", 64.0, [5.0], False, 32_768),
        # no card: the smallest class
        ("Q2_0", 64.0, [], False, 32_768),
        ("UD-IQ4_XS", 64.0, [], False, 8_192),
        (QWEN36, 32.0, [], False, 32_768),
        # RAM never takes away what is always allowed
        ("IQ3_S", 16.0, [80], False, 131_072),
    ],
)
def test_recommended(
    name: str, ram: float, cards: list[float], low_ram: bool, context: int
) -> None:
    found, why = recommend_context(find_row(name), ram, cards, low_ram)
    assert found == context
    assert why.startswith(f"context {context}: ")


def test_the_reason_has_the_numbers() -> None:
    row = find_row("Q2_0")
    assert recommend_context(row, 64, [15.9, 24], False)[1] == (
        "context 65536: the smallest card has 15.9 GiB, under 20"
    )
    assert recommend_context(row, 64, [], False)[1] == "context 32768: no card"


def test_what_decides_nothing_is_not_the_reason() -> None:
    # RAM allows just 131072, or the model was trained with just that: the card decides
    by_card = (131_072, "context 131072: the smallest card has 24.0 GiB, 20 or more")
    row = find_row("IQ3_S")
    assert recommend_context(row, 64.0, [24], False) == by_card
    assert recommend_context(replace(row, train_context=131_072), 64.0, [24], False) == by_card


def test_never_above_the_trained_length() -> None:
    short = replace(find_row("Q2_0"), train_context=4096)
    assert recommend_context(short, 64.0, [24], False) == (
        4096,
        "context 4096: the longest that the model allows",
    )


@pytest.mark.parametrize(
    ("name", "ram", "context"),
    [
        # experts + context * 13 * 1056 / 1e9 + 24
        ("IQ3_S", 76.5, 131_072),  # 204800: 50.3 + 2.81 + 24 = 77.11
        ("IQ3_S", 78.5, 262_144),  # 50.3 + 3.60 + 24 = 77.90
        ("IQ3_S", 77.91, 262_144),
        ("IQ3_S", 77.89, 204_800),
        ("IQ3_S", 77.12, 204_800),
        ("IQ3_S", 77.10, 131_072),
        ("IQ3_S", 79.70, 393_216),  # 50.3 + 5.398 + 24 = 79.698
        ("IQ3_S", 79.69, 262_144),
        ("IQ3_S", 81.50, 524_288),  # 50.3 + 7.197 + 24 = 81.497
        ("IQ3_S", 81.49, 393_216),
        ("IQ3_S", 16.0, 131_072),  # always allowed
        ("IQ3_XXS", 95.8, 524_288),  # 42.9 + 7.197 + 24 = 74.1
        ("IQ3_XXS", 74.10, 524_288),  # 74.097
        ("IQ3_XXS", 74.09, 393_216),
        ("Q2_0", 16.0, 524_288),  # no such rule
        ("IQ2_XS", 16.0, 524_288),
        ("IQ1_M", 16.0, 524_288),
        ("UD-Q4_K_XL", 16.0, 524_288),
        (QWEN36, 16.0, 524_288),
    ],
)
def test_by_ram(name: str, ram: float, context: int) -> None:
    assert ram_context(find_row(name), ram) == context


def test_the_rule_is_about_two_sizes_of_the_large_model() -> None:
    assert ram_context(find_row("IQ3_XXS", "swift"), 60.0) == 131_072
    assert ram_context(find_row("IQ3_XXS", "ornith"), 30.0) == 524_288


def test_need() -> None:
    row = find_row("IQ3_S")
    assert context_need(row, 262_144) == pytest.approx(77.9, abs=0.01)
    assert ram_context(row, context_need(row, 262_144)) == 262_144


@pytest.mark.parametrize(
    ("ram", "context", "low_ram", "told"),
    [
        (76.5, 262_144, False, True),
        (78.5, 262_144, False, False),
        (76.5, 131_072, False, False),
        (76.5, 262_144, True, False),  # no such rule with a low-memory mode
        (76.5, 200_000, False, True),  # a length beside the menu's
    ],
)
def test_a_longer_context_is_kept_with_a_note(
    ram: float, context: int, low_ram: bool, told: bool
) -> None:
    note = long_context_note(find_row("IQ3_S"), ram, context, low_ram)
    assert (note is not None) == told
    if context == 262_144 and told:
        assert note == (
            "context 262144 is kept, but IQ3_S needs 77.9 GiB of RAM for it; this machine has 76.5"
        )


@pytest.mark.parametrize(
    ("context", "method", "scale", "found"),
    [
        (262_144, None, None, None),
        (8_192, "none", None, None),
        (262_145, None, None, ("yarn", 262_145 / 262_144)),
        (393_216, None, None, ("yarn", 1.5)),  # 393216 / 262144
        (524_288, None, None, ("yarn", 2.0)),
        (524_288, "linear", None, ("linear", 2.0)),
        (524_288, "yarn", 4.0, ("yarn", 4.0)),
        (524_288, None, 2.5, ("yarn", 2.5)),
        (131_072, "yarn", None, ("yarn", 1.0)),  # at least 1
        (131_072, "yarn", 2.0, ("yarn", 2.0)),
        (131_072, "linear", 1.0, ("linear", 1.0)),
        (524_288, "yarn", 1.5, ("yarn", 1.5)),
    ],
)
def test_rope(
    context: int, method: str | None, scale: float | None, found: tuple[str, float] | None
) -> None:
    scaling = rope(context, 262_144, method, scale)
    assert (scaling and (scaling.method, scaling.factor)) == found


def test_rope_says_why() -> None:
    scaling = rope(524_288, 262_144)
    assert scaling is not None
    assert scaling.reason == "rope scaling yarn 2: 524288 / 262144 = 2"
    small = rope(524_288, 262_144, "yarn", 1.5)
    assert small is not None
    assert "too little" in small.reason
    enough = rope(524_288, 262_144, "yarn", 2.0)
    assert enough is not None
    assert enough.reason == "rope scaling yarn 2: as asked (524288 / 262144 = 2)"


@pytest.mark.parametrize(
    ("context", "method", "scale", "message"),
    [
        (262_145, "none", None, "is above 262144, the longest"),
        (524_288, "none", 2.0, "is above 262144, the longest"),
        (262_144, None, 2.0, "rope-scale 2 without a method"),
        (262_144, "none", 2.0, "rope-scale 2 without a method"),
        (262_144, "ntk", None, "allowed is none, yarn or linear"),
        (524_288, "yarn", 0.5, "allowed is a number from 1"),
        (524_288, "yarn", nan, "rope-scale is nan"),
        (524_288, "yarn", inf, "rope-scale is inf"),
    ],
)
def test_rope_refuses(context: int, method: str | None, scale: float | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rope(context, 262_144, method, scale)


@given(
    row=st.sampled_from(catalogue()),
    ram=st.floats(4, 1024),
    cards=st.lists(st.floats(2, 200), max_size=4),
    low_ram=st.booleans(),
)
def test_what_holds_of_every_machine(
    row: ModelRow, ram: float, cards: list[float], low_ram: bool
) -> None:
    found, _ = recommend_context(row, ram, cards, low_ram)
    assert found in (8_192, 32_768, 65_536, 131_072)  # 204800 and above only where asked
    assert long_context_note(row, ram, found, low_ram) is None
    assert rope(found, row.train_context) is None
