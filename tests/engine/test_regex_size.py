"""The length of a written-out regular expression, by expressions of known length."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.regex_size import regex_size

Known = tuple[str, int]
atoms: st.SearchStrategy[Known] = st.sampled_from(
    [("a", 1), (".", 1), (r"\d", 1), (r"\{", 1), ("[a-z{3}]", 1), (r"[^\]{9}]", 1), ("[]{2}]", 1)]
)


def grown(inner: st.SearchStrategy[Known]) -> st.SearchStrategy[Known]:
    """Groups of one after another or of alternatives, repeated."""
    groups = st.builds(
        lambda parts, sign: (
            f"({sign.join(text for text, _ in parts)})",
            sum(size for _, size in parts),
        ),
        st.lists(inner, min_size=1, max_size=3),
        st.sampled_from(["", "|"]),
    )
    repeated = st.builds(
        lambda one, least, more: (f"{one[0]}{{{least},{least + more}}}", one[1] * (least + more)),
        groups,
        st.integers(0, 3),
        st.integers(1, 3),
    )
    return groups | repeated


@given(st.recursive(atoms, grown, max_leaves=6))
def test_of_an_expression_that_was_put_together(known: Known) -> None:
    pattern, size = known
    re.compile(pattern)
    assert regex_size(pattern) == size


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("^a{400}$", 400),
        ("((a{50}){50}){50}", 125_000),
        (r"\d{4}-\d{2}", 7),
        ("(a|bc){2,}", 6),
        (r"\p{L}{3}", 3),
        ("a{0}", 1),
        ("a{" + "9" * 5000 + "}", 999_999_999),
        ("(((", 0),
        (")a", 1),
        ("", 0),
    ],
)
def test_of_some(pattern: str, size: int) -> None:
    assert regex_size(pattern) == size
