"""What setup says about `parallel`."""

from __future__ import annotations

from itertools import product

import pytest

from engine.errors import ConfigError
from setup.rules.slots import parallel_messages

PHRASE = (
    "parallel N reduces waiting for several users but costs about 10-25% speed per request on "
    "this card"
)


def test_not_asked_and_not_recommended() -> None:
    assert parallel_messages(None, 0, 0.585) == (
        f"recommended is one request at a time: {PHRASE}; see docs/batching.md",
    )


def test_not_asked_but_recommended() -> None:
    (line,) = parallel_messages(None, 3, 0.585)
    assert "--parallel 3" in line
    assert "0.6 GB" in line
    assert "opt-in" in line
    assert "nothing was written" in line


@pytest.mark.parametrize("asked", [0, 1])
@pytest.mark.parametrize("recommended", [0, 3])
def test_one_at_a_time(asked: int, recommended: int) -> None:
    assert parallel_messages(asked, recommended, 0.585) == ("one request at a time, as asked",)


@pytest.mark.parametrize("asked", [2, 3, 4])
def test_what_is_recommended_takes_one_line(asked: int) -> None:
    (line,) = parallel_messages(asked, asked, 0.585)
    assert line.startswith(f"{asked} conversations at once")
    assert "about 0.6 GB each" in line
    assert f"{asked * 0.585:.1f} GB together" in line


def test_fewer_than_recommended_take_one_line() -> None:
    assert len(parallel_messages(2, 4, 0.585)) == 1


def test_asked_where_none_is_recommended() -> None:
    assert parallel_messages(2, 0, 0.585) == (
        "2 conversations at once, as asked: about 0.6 GB each, 1.2 GB together",
        f"recommended is one at a time: {PHRASE}; 2 is kept",
    )


def test_more_than_recommended() -> None:
    first, second = parallel_messages(4, 3, 0.585)
    assert first == "4 conversations at once, as asked: about 0.6 GB each, 2.3 GB together"
    assert second == (
        "recommended is 3: more slots leave room for fewer experts on the cards; 4 is kept"
    )


def test_no_message_names_a_limit_that_this_engine_does_not_have() -> None:
    for asked, recommended in product((None, 0, 2, 8, 9, 16, 64), (0, 2, 4)):
        text = " ".join(parallel_messages(asked, recommended, 0.585))
        assert "at most" not in text


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ConfigError, match="parallel is -1, allowed is a whole number from 0"):
        parallel_messages(-1, 0, 0.585)
