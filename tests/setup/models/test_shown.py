"""What a server says, as a person sees it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setup.models.hub.shown import shown, whole_number


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain", "plain"),
        ("a\x1b[2J\n", r"a\x1b[2J\n"),
        ("\u202eevil\xe9", r"\u202eevil\xe9"),
        ("x" * 20, "x" * 20),
        ("x" * 21, "x" * 17 + "..."),
        ("\x00" * 6, r"\x00\x00\x00\x00" + "\\..."),  # 24 characters, of which 17 stay
    ],
)
def test_what_is_shown_is_short_and_printable(text: str, seen: str) -> None:
    assert shown(text, 20) == seen


@given(st.text())
def test_whole_numbers_of_headers(text: str) -> None:
    number = whole_number(text)
    assert number is None or 0 <= number < 10**15
    assert number is None or str(number) == text.strip().lstrip("0") or number == 0
