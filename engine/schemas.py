"""Which JSON schemas an answer can be held to, and what they may cost.

A schema of one conversation is worked through between the windows of all. So what is large, or
becomes large when it is written out, is refused before it is taken, and the grammar's own steps
have limits that are far above what schemas need.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.errors import RequestError
from engine.regex_size import regex_size
from engine.schema_values import has_value, properties_of, subschemas

FIELD = "response_format"
"""What an engine's words about a schema begin with: the field of a request that it came in."""
MOST_SCHEMA = 1 << 16
"""Characters of a schema."""
LONGEST_TEXT = 4096
"""Characters of a text that is to be written as it stands, or of a pattern's written-out form."""
MOST_OPTIONAL = 400
"""Properties of one object that may be left out: each is a branch at every comma."""
_FUEL: Any = {"initial_lexer_fuel": 200_000, "step_lexer_fuel": 20_000, "step_max_items": 20_000}
"""llguidance's limits, in its own units: of a compilation, and of a step from token to token."""
_OPTIONS: Any = {"whitespace_pattern": r"( |\n[ \t]{0,16})?"}
"""White space between JSON's tokens: a space, or a line's end with its indent; never more."""
MASKED = b"\xff"
"""Before a token's bytes: it is no text, whatever its name."""
_TRIED = 32
"""Bytes of an answer that are tried before its schema is taken."""
_END = 256


def matcher_of(schema: str, tokenizer: Any) -> Any:
    """llguidance's matcher of JSON that fits `schema`. Raises `RequestError`."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(**_FUEL, verbose_errors=False)
    matcher = LLMatcher(tokenizer, _grammar_of(schema), limits=limits, log_level=0)
    if matcher.is_error():
        raise RequestError(_first_line(matcher))
    return matcher


def check(matcher: Any) -> None:
    """Raise `RequestError` where `matcher` is at its end and the answer is not whole."""
    if not matcher.is_stopped() or (matcher.is_accepting() and not matcher.is_error()):
        return
    why = _first_line(matcher)
    if not why or why.startswith("NoExtension"):
        raise RequestError("the schema lets nothing follow, and the answer is not whole")
    why = f"the schema is too complex: {why}"
    raise RequestError(f"{why}; fewer alternatives and repetitions may help")


def _first_line(matcher: Any) -> str:
    """Of llguidance's error; the others show its inner state."""
    return str(matcher.get_error()).partition("\n")[0][:200]


def fault_of(schema: str) -> str:
    """Why no answer can be held to `schema` (JSON text); empty: one can."""
    if len(schema) > MOST_SCHEMA:
        return _more("it", len(schema), MOST_SCHEMA, "characters").message
    try:
        root = json.loads(schema)
    except (ValueError, RecursionError) as error:
        return f"the schema is no JSON object: {error}"
    try:
        nodes = list(subschemas(root))
        for node in nodes:
            _check_costs(node)
        if not has_value(root, nodes):
            raise RequestError("no value fits it: what it requires leads back to itself for ever")
        _try(matcher_of(schema, _byte_tokenizer()))
    except RequestError as error:
        return error.message
    return ""


def _grammar_of(schema: str) -> str:
    """The grammar of JSON that fits `schema`. Raises `RequestError` for text that is no JSON."""
    from llguidance import LLMatcher

    try:
        return str(LLMatcher.grammar_from_json_schema(schema, overrides=_OPTIONS))
    except ValueError as error:
        raise RequestError(f"the schema is no JSON object: {error}") from None


def _check_costs(node: dict[str, Any]) -> None:
    """Raise `RequestError` where the grammar of `node` alone would be too large."""
    for text in (*_texts(node.get("const")), *_texts(node.get("enum")), *properties_of(node)):
        if len(text) > LONGEST_TEXT:
            raise _more(f"the text {text[:20]!r}...", len(text), LONGEST_TEXT, "characters")
    patterns = [*(node.get("patternProperties") or ()), node.get("pattern")]
    for pattern in patterns:
        size = regex_size(pattern) if isinstance(pattern, str) else 0
        if size > LONGEST_TEXT:
            raise _more(f"the pattern {pattern[:40]!r}", size, LONGEST_TEXT, "parts")
    required = node.get("required")
    optional = properties_of(node) - set(_texts(required if isinstance(required, list) else []))
    if len(optional) > MOST_OPTIONAL:
        raise _more("an object", len(optional), MOST_OPTIONAL, "properties that are not required")


def _texts(value: Any) -> Iterator[str]:
    """The texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        if isinstance(value, dict):
            yield from value
            value = value.values()
        for one in value:
            yield from _texts(one)


def _more(what: str, count: int, most: int, unit: str) -> RequestError:
    return RequestError(f"{what} has {count} {unit}, at most {most} are allowed")


def _try(matcher: Any) -> None:
    """Write the beginning of an answer, byte by byte, as an engine would token by token."""
    for _ in range(_TRIED):
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        check(matcher)
        dark = mask >> 33  # without white space, of which there may always be more
        byte = 33 + (dark & -dark).bit_length() - 1
        if not dark or byte == _END:
            return
        matcher.consume_token(byte)


@cache
def _byte_tokenizer() -> Any:
    """llguidance's tokenizer of a model whose tokens are bytes, and an end."""
    tokens = [*(bytes([byte]) for byte in range(_END)), MASKED]
    return tokenizer_of(tokens, [_END], lambda text: list(text.encode()))


def tokenizer_of(
    tokens: Sequence[bytes], ends: Sequence[int], encode: Callable[[str], list[int]]
) -> Any:
    """llguidance's tokenizer of the bytes of tokens."""
    from llguidance import LLTokenizer, TokenizerWrapper

    wrapper = TokenizerWrapper(_Plain([*tokens], ends[0], encode))
    return LLTokenizer(wrapper, eos_token=[*ends])


@dataclass(frozen=True, slots=True)
class _Plain:
    """A tokenizer as llguidance asks for it."""

    tokens: Sequence[bytes]
    eos_token_id: int
    encode: Callable[[str], list[int]]
    bos_token_id: int | None = None

    def __call__(self, text: str) -> list[int]:
        if not isinstance(text, str):  # the wrapper tries bytes first
            raise TypeError("a text is needed")
        return self.encode(text)
