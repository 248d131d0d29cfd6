"""The oracle is `bytes.decode(errors="replace")` of the whole."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.detokenizer import StreamDecoder
from engine.errors import RequestError
from engine.gguf.reader import open_gguf
from engine.gguf.tokenizer import Tokenizer

FIXTURE = Path(__file__).parents[1] / "fixtures" / "q4exp-a-f16.gguf"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    with open_gguf(FIXTURE) as model:
        return Tokenizer.from_metadata(model.metadata)


def decoded(pieces: list[bytes]) -> list[str]:
    decoder = StreamDecoder(pieces.__getitem__)
    return [*(decoder.push(id) for id in range(len(pieces))), decoder.finish()]


@st.composite
def cut_bytes(draw: st.DrawFn) -> list[bytes]:
    """Bytes that are near UTF-8, cut anywhere."""
    part = st.one_of(
        st.text(max_size=4).map(str.encode),
        st.binary(max_size=3),
        st.sampled_from([b"\xf0\x9f", b"\xe2\x82", b"\xc3", b"\xed\xa0", b"\xf4\x90", b"\xc0"]),
    )
    whole = b"".join(draw(st.lists(part, max_size=8)))
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


@settings(max_examples=400, deadline=None)
@given(cut_bytes())
def test_every_split_gives_the_text_of_the_whole(pieces: list[bytes]) -> None:
    assert "".join(decoded(pieces)) == b"".join(pieces).decode(errors="replace")


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=20), st.data())
def test_only_whole_characters(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cut = data.draw(st.integers(0, len(raw)))
    first, second, rest = decoded([raw[:cut], raw[cut:]])
    assert "\ufffd" not in first or "\ufffd" in text
    assert text.startswith(first)
    assert (first + second, rest) == (text, "")


def test_a_character_byte_by_byte() -> None:
    assert decoded([bytes([byte]) for byte in "a👍é".encode()]) == [
        *("a", "", "", "", "👍", "", "é"),
        "",
    ]


def test_a_character_that_is_never_completed() -> None:
    assert decoded([b"x\xf0\x9f\x91"]) == ["x", "\ufffd"]


def test_stream_equals_decode(tokenizer: Tokenizer) -> None:
    @settings(max_examples=300, deadline=None)
    @given(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=40), st.booleans())
    def check(ids: list[int], skip_special: bool) -> None:
        stream = tokenizer.stream(skip_special=skip_special)
        text = "".join(map(stream.push, ids)) + stream.finish()
        assert text == tokenizer.decode(ids, skip_special=skip_special)

    check()


def test_finish_makes_it_new(tokenizer: Tokenizer) -> None:
    stream = tokenizer.stream()
    half = next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == b"\xe2")
    assert (stream.push(half), stream.finish()) == ("", "\ufffd")
    assert (stream.push(tokenizer.encode("a")[0]), stream.finish()) == ("a", "")


def test_an_unknown_id(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="not in the vocabulary"):
        tokenizer.stream().push(tokenizer.vocab_size)


def test_cost_does_not_grow_with_the_text() -> None:
    """A million tokens: with a cost that grew with what is there it would take hours."""
    decoder = StreamDecoder(lambda id: "é漢".encode()[id % 5 : id % 5 + 1])
    begin_s = time.process_time()
    count = sum(len(decoder.push(id)) for id in range(1_000_000))
    assert count == 400_000
    assert time.process_time() - begin_s < 15
