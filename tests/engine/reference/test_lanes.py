"""The ordered sums against the literal order, at lengths around lanes and segments."""

import numpy as np
import pytest

from engine.reference.lanes import LANES, SEGMENT, dot, total, tree_columns
from tests.engine.reference import literal

LENGTHS = (1, 2, 31, 32, 33, 64, 100, 511, 512, 513, 543, 545, 1024, 1300)


def _vector(length: int, seed: int) -> np.ndarray:
    """Magnitudes of many orders, so that another order gives other bits."""
    random = np.random.default_rng(seed)
    return random.standard_normal(length, np.float32) * np.exp2(
        random.integers(-12, 12, length)
    ).astype(np.float32)


@pytest.mark.parametrize("length", LENGTHS)
def test_dot(length: int) -> None:
    a, b = _vector(length, 1), _vector(length, 2)
    assert np.float32(dot(a, b, np.empty(LANES, np.float32))) == literal.dot(a, b)


@pytest.mark.parametrize("length", LENGTHS)
def test_total(length: int) -> None:
    a = _vector(length, 3)
    assert np.float32(total(a, np.empty(LANES, np.float32))) == literal.ordered_sum(list(a))


def test_columns_are_summed_like_one() -> None:
    lanes = _vector(32 * 7, 4).reshape(32, 7)
    wanted = [literal.ordered_sum(list(column)) for column in lanes.T]
    out = np.full(7, np.nan, np.float32)
    tree_columns(lanes, out)
    np.testing.assert_array_equal(out, np.array(wanted, np.float32))


def test_the_order_matters_here() -> None:
    """The vectors above tell orders apart: a plain sum in turn has other bits."""
    a = _vector(1300, 3)
    plain = np.float32(0)
    for value in a:
        plain += value
    assert plain != literal.ordered_sum(list(a))


def test_the_literal_order_by_hand() -> None:
    """2**24 + 1 is no float32, which makes every step visible."""
    big, one = np.float32(2**24), np.float32(1)
    in_turn = np.zeros(64, np.float32)
    in_turn[[0, 32, 33]] = big, one, one  # 1 is lost in lane 0; lane 1 adds another 1: lost
    assert literal.ordered_sum(list(in_turn)) == big
    pairs = np.zeros(64, np.float32)
    pairs[[0, 2, 3]] = big, one, one  # lanes 2 and 3 meet before they meet lane 0
    assert literal.ordered_sum(list(pairs)) == big + 2
    segments = np.zeros(2 * SEGMENT, np.float32)
    segments[[0, SEGMENT, SEGMENT + 1]] = big, one, one
    assert literal.ordered_sum(list(segments)) == big + 2
