"""Philox against the published vectors and against numpy's generator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.philox import PHILOX_4X32, Philox, draw

# The generator that numpy has: the same rounds on 64-bit words.
PHILOX_4X64 = Philox(
    64, (0xD2E7470EE14C6C93, 0xCA5A826395121157), (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
)
words64 = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_known_answers_of_random123(counter: str, key: str, expected: str) -> None:
    def words(text: str) -> tuple[int, ...]:
        return tuple(int(word, 16) for word in text.split())

    assert PHILOX_4X32.block(words(counter), words(key)) == words(expected)


@given(st.tuples(words64, words64, words64, words64), st.tuples(words64, words64))
def test_the_rounds_are_numpys(counter: tuple, key: tuple) -> None:
    oracle = np.random.Philox(counter=np.array(counter, np.uint64), key=np.array(key, np.uint64))
    # numpy counts up before it draws.
    whole = sum(word << 64 * i for i, word in enumerate(counter)) + 1
    following = tuple(whole >> 64 * i & 2**64 - 1 for i in range(4))
    assert PHILOX_4X64.block(following, key) == tuple(int(w) for w in oracle.random_raw(4))


def test_draws_differ_by_seed_and_position_and_fill_the_range() -> None:
    draws = [draw(seed, position) for seed in (1, 2, 2**40) for position in range(500)]
    assert len(set(draws)) == len(draws)
    assert 0 <= min(draws) < 2**32 // 50
    assert 2**32 - 2**32 // 50 < max(draws) < 2**32
    assert abs(np.mean(draws) / 2**32 - 0.5) < 0.03


def test_both_words_of_seed_and_position_count() -> None:
    assert draw(5, 7) != draw(5 + 2**32, 7)
    assert draw(5, 7) != draw(5, 7 + 2**32)
