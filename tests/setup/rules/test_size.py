"""Families and sizes by RAM."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError
from setup.models.catalogue import FAMILIES, catalogue, find_row
from setup.rules.size import below_floor, recommend_family, recommend_row, size_verdict

ROWS = catalogue()


@pytest.mark.parametrize(
    ("ram", "family"),
    [
        (15.6, "qwen36"),  # a 16 GB machine: below every line of the large model
        (23.4, "qwen36"),
        (31.3, "qwen"),  # 32 - 4 = 28 is reached
        (27.99, "qwen36"),
        (28.0, "qwen"),
        (63.7, "qwen"),
        (512.0, "qwen"),
    ],
)
def test_family(ram: float, family: str) -> None:
    assert recommend_family(ROWS, ram) == family


def test_family_of_other_catalogues() -> None:
    large = [row for row in ROWS if row.family == "coder"]
    small = [row for row in ROWS if row.family in ("ornith", "huihui")]
    assert recommend_family(large, 8.0) == "coder"  # there is no small model to take instead
    assert recommend_family(small[:3], 256.0) == "ornith"
    assert recommend_family(small[1:3], 256.0) == "ornith"
    assert recommend_family(small[2:], 256.0) == "huihui"
    with pytest.raises(ConfigError, match="no model"):
        recommend_family([], 64.0)


@pytest.mark.parametrize(
    ("ram", "cards", "family", "key"),
    [
        # the published machines
        (63.7, [31.8], None, "IQ3_XXS"),
        (31.9, [24, 24], None, "Q2_0"),
        (47.0, [15.9, 15.9], None, "Q2_0"),
        (95.8, [15.9], None, "IQ3_XXS"),
        (127.8, [24], None, "IQ3_XXS"),
        # both sides of 60, and families without that size
        (59.99, [24], "qwen", "Q2_0"),
        (60.0, [24], "qwen", "IQ3_XXS"),
        (59.99, [24], "swift", "IQ2_XS"),
        (60.0, [24], "swift", "IQ3_XXS"),
        (31.9, [24], "coder", "IQ1_M"),
        (256.0, [24], "coder", "IQ1_M"),
        (256.0, [24], "unsloth", "UD-IQ4_XS"),  # the other one is experimental
        # Qwen3.6: experts + 10
        (15.6, [11.9], None, "Qwen3.6-UD-IQ3_S"),  # 12.9 + 10 = 22.9 > 15.6
        (23.4, [11.9], None, "Qwen3.6-UD-IQ3_S"),  # 25.2 > 23.4
        (31.3, [11.9], "qwen36", "Qwen3.6-UD-IQ4_XS"),  # 15.2 + 10 = 25.2
        (25.2, [11.9], "qwen36", "Qwen3.6-UD-IQ4_XS"),
        (25.19, [11.9], "qwen36", "Qwen3.6-UD-IQ3_S"),
        (63.7, [5.49], "qwen36", "Qwen3.6-UD-IQ3_S"),  # a very small card
        (63.7, [5.5], "qwen36", "Qwen3.6-UD-IQ4_XS"),
        (63.7, [4, 24], "qwen36", "Qwen3.6-UD-IQ4_XS"),  # it runs on the larger card
        (31.3, [], "qwen36", "Qwen3.6-UD-IQ4_XS"),
    ],
)
def test_size(ram: float, cards: list[float], family: str | None, key: str) -> None:
    row, why = recommend_row(ROWS, ram, cards, family)
    assert row.key == key
    assert why.startswith(f"{key}: ")


@pytest.mark.parametrize(
    ("ram", "carve_out", "key"),
    [
        (47.0, 33.0, "UD-IQ4_XS"),  # 80 in all
        (47.0, 32.9, "Q2_0"),
        (30.8, 96.0, "UD-IQ4_XS"),
        (63.0, 16.9, "IQ3_XXS"),
    ],
)
def test_a_processor_with_graphics_and_much_memory(ram: float, carve_out: float, key: str) -> None:
    found, why = recommend_row(ROWS, ram, [carve_out], carve_out_gib=carve_out)
    assert found.key == key
    if key == "UD-IQ4_XS":
        assert f"{carve_out:.1f}" in why
    # the user's family goes before it
    assert recommend_row(ROWS, ram, [carve_out], "coder", carve_out_gib=carve_out)[0].key == "IQ1_M"


def test_experimental_sizes_come_last() -> None:
    first, *others = (row for row in ROWS if row.family == "qwen36")
    rows = (replace(first, experimental=True), *others)
    assert recommend_row(rows, 64.0, [24])[0] == others[0]
    assert recommend_row(rows[:1], 64.0, [24])[0] == rows[0]  # where there is no other


def test_a_catalogue_without_the_family_for_much_memory() -> None:
    rows = [row for row in ROWS if row.family == "qwen"]
    assert recommend_row(rows, 63.0, [96.0], carve_out_gib=96.0)[0].key == "IQ3_XXS"


def test_reasons_have_the_numbers() -> None:
    assert recommend_row(ROWS, 63.7, [24])[1] == "IQ3_XXS: 63.7 GiB of RAM (60 or more)"
    assert recommend_row(ROWS, 31.9, [24])[1] == (
        "Q2_0: the first size of qwen, 31.9 GiB of RAM (IQ3_XXS from 60)"
    )
    assert recommend_row(ROWS, 256.0, [24], "coder")[1] == (
        "IQ1_M: the first size of coder, 256.0 GiB of RAM"
    )
    assert recommend_row(ROWS, 31.3, [12], "qwen36")[1] == (
        "Qwen3.6-UD-IQ4_XS: experts 15.2 GB + 10 GiB = 25.2 of 31.3 GiB, with a GB counted as a GiB"
    )


def test_unknown_family() -> None:
    with pytest.raises(ConfigError) as caught:
        recommend_row(ROWS, 64.0, [24], "qwen37")
    assert "'qwen37'" in caught.value.message
    assert "did you mean qwen" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "ram", "cards", "word"),
    [
        ("IQ3_S", 62.0, [], "fits"),  # its line is 62
        ("IQ3_S", 61.99, [], "tight"),
        ("IQ3_S", 54.0, [], "tight"),  # 62 - 8
        ("IQ3_S", 53.99, [8], "low memory"),  # 47.99 + 3 = 50.99 >= 50.3
        ("IQ3_S", 53.99, [7], "does not fit"),  # 47.99 + 2 = 49.99
        ("Q2_0", 31.8, [16], "low memory"),  # 25.8 + 11 = 36.8 >= 34
        ("IQ2_XS", 31.8, [16], "low memory"),  # 36.8 >= 35.5
        ("IQ3_XXS", 31.8, [16], "does not fit"),  # 36.8 < 42.9
        ("IQ1_M", 31.8, [16], "tight"),  # 32 - 8 = 24
        ("Qwen3.6-UD-IQ3_S", 15.6, [11.9], "low memory"),  # 9.6 + 6.9 = 16.5 >= 12.9
        ("Qwen3.6-UD-IQ3_S", 15.6, [7.99], "does not fit"),  # 12.59 < 12.9
        ("Qwen3.6-UD-IQ3_S", 15.6, [7.99, 7.99], "does not fit"),  # one card only
        ("Qwen3.6-UD-IQ3_S", 15.6, [11.9, 4.0], "low memory"),  # the larger one
        ("UD-Q4_K_XL", 48.0, [24], "fits"),
        ("UD-Q4_K_XL", 47.0, [24], "tight"),
        ("UD-Q4_K_XL", 39.99, [80], "does not fit"),  # a budget model has no low-memory mode
    ],
)
def test_verdict(name: str, ram: float, cards: list[float], word: str) -> None:
    row = find_row(name)
    found, why = size_verdict(row, ram, cards)
    assert found == word
    assert f"{row.ram_gib:g} GiB" in why
    assert f"{ram:.1f}" in why


def test_budget_models_print_their_budget() -> None:
    assert size_verdict(find_row("UD-Q4_K_XL"), 63.7, [24])[1] == (
        "UD-Q4_K_XL wants 48 GiB of RAM, this machine has 63.7; resident budget 40 GiB: "
        "63.7 GiB of RAM - 24, 8 at least, 71 at most"
    )


@pytest.mark.parametrize(
    ("family", "ram", "cards", "below"),
    [
        ("qwen", 43.99, [], False),  # below 48 - 4, but 37.99 >= 34: Q2_0 in low memory
        ("qwen", 39.99, [], True),  # 33.99 < 34
        ("coder", 28.0, [], False),  # 32 - 4
        ("coder", 27.99, [], True),  # 21.99 < 23.4
        ("coder", 27.99, [6.42], False),  # 21.99 + 1.42 = 23.41 >= 23.4
        ("coder", 27.99, [6.40], True),
        ("coder", 15.6, [16], True),  # 9.6 + 11 = 20.6
        ("coder", 15.6, [24], False),  # 9.6 + 19 = 28.6
        ("qwen36", 15.6, [11.9], False),
        ("qwen36", 15.6, [7.99], True),
        ("qwen36", 20.0, [], False),  # 24 - 4
    ],
)
def test_floor(family: str, ram: float, cards: list[float], below: bool) -> None:
    told = below_floor([row for row in ROWS if row.family == family], ram, cards)
    assert (told is not None) == below
    if told:
        assert f"{ram:.1f} GiB" in told


@given(ram=st.floats(1, 2048), cards=st.lists(st.floats(1, 300), max_size=4))
def test_every_machine_gets_a_size(ram: float, cards: list[float]) -> None:
    for family in (None, *FAMILIES):
        row, _ = recommend_row(ROWS, ram, cards, family)
        assert family in (None, row.family)
        assert not row.experimental
    order = ("does not fit", "low memory", "tight", "fits")
    for row in ROWS:
        less = order.index(size_verdict(row, ram, cards)[0])
        assert order.index(size_verdict(row, ram + 16, cards)[0]) >= less
