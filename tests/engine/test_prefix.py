"""How far two lists of token ids are the same."""

from hypothesis import given
from hypothesis import strategies as st

from engine.prefix import common_prefix


@given(st.integers(0, 1600), st.lists(st.integers(0, 3), max_size=4), st.integers(0, 1600))
def test_it_is_the_length_that_was_made(same: int, tail: list[int], more: int) -> None:
    a = [*range(same), *tail]
    b = (*range(same), 9, *range(more))
    assert common_prefix(a, b) == common_prefix(b, a) == same
    assert common_prefix(a, a[:same]) == same


def test_nothing_is_the_same_of_nothing() -> None:
    assert common_prefix([], [1]) == 0
    assert common_prefix([1], [1, 2]) == 1
