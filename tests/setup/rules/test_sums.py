"""Sums are told with their units, and small numbers are not nothing."""

from __future__ import annotations

import pytest

from setup.rules.sums import amount, compared, gigabytes, number


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00332, "0"), (2.0133, "2.01"), (2.5, "2.5"), (34.0, "34"), (50.3, "50.3")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_units_stand_beside_what_is_added() -> None:
    # strata-tiny: 0.00332 GB of experts and 2.01 GiB beside them are 2.01, not 2.0.
    assert compared(f"{amount(0.00332)} + {number(2.01)} GiB", 2.01332, 23.5) == (
        "3.32 MB + 2.01 GiB = 2.01 of 23.5 GiB, with a GB counted as a GiB"
    )


@pytest.mark.parametrize(
    ("value", "text"), [(0.585, "0.58 GB"), (0.0021, "2.1 MB"), (1.17, "1.17 GB")]
)
def test_what_is_less_than_a_tenth_of_a_gigabyte_is_told_in_megabytes(
    value: float, text: str
) -> None:
    assert gigabytes(value) == text
