"""Encoding turn by turn: the ids are those of the whole text, and only new turns are encoded."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.gguf.tokenizer import Tokenizer
from engine.model_source import open_model
from engine.server.text_model import TURN, GgufText
from engine.server.turn_cache import TurnCache, splits

MODEL = Path(__file__).parents[3] / "profiles/models/strata-tiny.gguf"
PIECES = (
    "<|im_start|>",
    "<|im_end|>\n",
    "user\n",
    "<think>",
    "<|im_st",
    "art|>",
    " the cat",
    "é",
    "\n\n",
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    gguf = open_model(MODEL)
    try:
        return Tokenizer.from_metadata(gguf.metadata)
    finally:
        gguf.close()


@pytest.fixture(scope="module")
def text() -> GgufText:
    return GgufText(MODEL)


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=20).map("".join))
def test_ids_are_those_of_the_whole_text(tokenizer: Tokenizer, text: GgufText, said: str) -> None:
    whole = tokenizer.encode(said, parse_special=True)
    assert text.encode(said, parse_special=True) == whole
    assert text.encode(said, parse_special=True) == whole
    assert text.encode(said) == tokenizer.encode(said)


def test_a_next_turn_encodes_what_is_new() -> None:
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return [ord(character) for character in text]

    cache = TurnCache(encode, "#")
    first, second = "so#a question#", "so#a question#an answer#more#"
    assert bytes(cache.encode(first)).decode() == first
    asked.clear()
    assert bytes(cache.encode(second)).decode() == second
    assert asked == ["so", "#an answer", "#more"]


def test_no_more_is_kept_than_allowed() -> None:
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return [1]

    cache = TurnCache(encode, "#", most=8)
    for turn in ("#1234", "#567", "#1234", "#89", "#567", "#1234", "#a text of many letters"):
        cache.encode(turn)
    # The one used longest ago went for each new one, and the last one is too long to be kept.
    assert asked == ["#1234", "#567", "#1234", "#89", "#567", "#1234", "#a text of many letters"]
    asked.clear()
    cache.encode("#12#34#12")
    assert asked == ["#12", "#34"]


def test_threads_agree(tokenizer: Tokenizer, text: GgufText) -> None:
    said = [f"{TURN}user\n{'word ' * (i % 7)}{TURN}assistant\n" for i in range(40)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda one: text.encode(one, parse_special=True), said))
    assert found == [tokenizer.encode(one, parse_special=True) for one in said]


@pytest.mark.parametrize(
    ("others", "clear"),
    [(["<b>", "<a>"], True), (["<a><b>"], False), (["b<"], False), ([">c"], False), ([], True)],
)
def test_a_token_that_another_may_take_a_part_of_splits_nothing(
    others: list[str], clear: bool
) -> None:
    assert splits("<a>", others) == clear
