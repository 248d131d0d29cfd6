"""Budgets of RAM for the models that run within one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError
from setup.models.catalogue import find_row
from setup.rules.budget import budget_split, resident_budget_gib


@pytest.mark.parametrize(
    ("name", "ram", "streamed", "budget"),
    [
        # max(8, min(round(RAM) - 24 - ceil(streamed), int(experts / 1.073741824)))
        ("UD-Q4_K_XL", 63.7, 0, 40),  # 64 - 24
        ("UD-Q4_K_XL", 47.8, 0, 24),  # 48 - 24
        ("UD-Q4_K_XL", 96.0, 0, 71),  # 72, but 77 / 1.0737 = 71.7
        ("UD-Q4_K_XL", 256.0, 0, 71),
        ("UD-IQ4_XS", 95.8, 0, 55),  # 72, but 59.5 / 1.0737 = 55.4
        ("UD-Q4_K_XL", 20.0, 0, 8),  # 20 - 24 = -4, at least 8
        ("UD-Q4_K_XL", 63.7, 1.7, 38),  # 64 - 24 - 2
        # the recorded machines of the original
        ("UD-Q4_K_XL", 31.9, 0, 8),  # 32 - 24 = 8
        ("UD-Q4_K_XL", 47.0, 0, 23),  # 47 - 24
        ("UD-Q4_K_XL", 95.8, 0, 71),  # 96 - 24 = 72
        ("UD-Q4_K_XL", 127.8, 0, 71),
        # both sides
        ("UD-Q4_K_XL", 33.4, 0, 9),  # 33 - 24
        ("UD-Q4_K_XL", 32.4, 0, 8),
        ("UD-Q4_K_XL", 94.6, 0, 71),  # 95 - 24
        ("UD-Q4_K_XL", 94.4, 0, 70),  # 94 - 24
        ("UD-Q4_K_XL", 63.7, 2.0, 38),
        ("UD-Q4_K_XL", 63.7, 2.01, 37),
    ],
)
def test_worked_examples(name: str, ram: float, streamed: float, budget: int) -> None:
    assert resident_budget_gib(find_row(name), ram, streamed)[0] == budget


def test_the_reason_has_the_sum() -> None:
    row = find_row("UD-Q4_K_XL")
    assert resident_budget_gib(row, 63.7, 1.7)[1] == (
        "resident budget 38 GiB: 63.7 GiB of RAM - 24 - 2 for keys and values, 8 at least, "
        "71 at most"
    )


def test_the_users_number_is_kept() -> None:
    row = find_row("UD-Q4_K_XL")
    assert resident_budget_gib(row, 63.7, 0, 30) == (30, "resident budget 30 GiB: as asked")
    assert resident_budget_gib(row, 63.7, 0, 40) == (40, "resident budget 40 GiB: as asked")
    assert resident_budget_gib(row, 63.7, 0, 1) == (1, "resident budget 1 GiB: as asked")
    found, why = resident_budget_gib(row, 63.7, 0, 41)
    assert found == 41
    assert "more than the 40 recommended" in why


@pytest.mark.parametrize("asked", [0, -8])
def test_a_budget_of_nothing_is_refused(asked: int) -> None:
    with pytest.raises(ConfigError, match=f"is {asked}, allowed is a whole number from 1"):
        resident_budget_gib(find_row("UD-Q4_K_XL"), 63.7, 0, asked)


@pytest.mark.parametrize(
    ("name", "ram", "allowed"),
    [
        ("UD-Q4_K_XL", 135.31, True),  # 111.3 + 24 = 135.3
        ("UD-Q4_K_XL", 135.29, False),
        ("UD-IQ4_XS", 117.71, True),  # 93.7 + 24 = 117.7
        ("UD-IQ4_XS", 117.69, False),
    ],
)
def test_a_split_needs_the_whole_model_in_ram(name: str, ram: float, allowed: bool) -> None:
    found, why = budget_split(find_row(name), ram)
    assert found == allowed
    assert budget_split(find_row(name), find_row(name).download_gb + 24)[0]
    assert f"{ram:.1f} GiB" in why
    assert f"{find_row(name).download_gb} GB + 24 GiB = " in why


@given(ram=st.floats(1, 2048), streamed=st.floats(0, 16))
def test_the_budget_stays_within_its_bounds(ram: float, streamed: float) -> None:
    row = find_row("UD-Q4_K_XL")
    found = resident_budget_gib(row, ram, streamed)[0]
    assert 8 <= found <= 71
    assert resident_budget_gib(row, ram + 1, streamed)[0] >= found
    assert resident_budget_gib(row, ram, streamed + 1)[0] <= found
