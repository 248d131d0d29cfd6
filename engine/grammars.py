"""Grammars that say which tokens an answer may have next, and what they may cost.

They are llguidance's. A grammar of one conversation is worked through between the windows of all,
so its steps have limits that are far above what schemas and calls of tools need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.errors import RequestError

FIELD = "grammar"
"""What an engine's words about a grammar begin with: the key of the protocol that it came in."""
TOO_DEEP = RequestError("the schema is nested too deep")
_FUEL: Any = {"initial_lexer_fuel": 200_000, "step_lexer_fuel": 20_000, "step_max_items": 20_000}
"""llguidance's limits, in its own units: of a compilation, and of a step from token to token."""
MASKED = b"\xff"
"""Before a token's bytes: it is no text, whatever its name."""
_TRIED = 32
"""Bytes of an answer that are tried before its grammar is taken."""
_END = 256


def matcher_of(grammar: str, tokenizer: Any) -> Any:
    """llguidance's matcher of `grammar`, in either of its two forms. Raises `RequestError`."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(**_FUEL, verbose_errors=False)
    matcher = LLMatcher(tokenizer, grammar, limits=limits, log_level=0)
    if matcher.is_error():
        raise RequestError(_reason(matcher.get_error()))
    return matcher


def check(matcher: Any) -> None:
    """Raise `RequestError` where `matcher` is at its end and the answer is not whole."""
    if not matcher.is_stopped() or (matcher.is_accepting() and not matcher.is_error()):
        return
    why = _reason(matcher.get_error())
    if not why or why.startswith("NoExtension"):
        raise RequestError("the schema lets nothing follow, and the answer is not whole")
    why = f"the schema is too complex: {why}"
    raise RequestError(f"{why}; fewer alternatives and repetitions may help")


def try_grammar(grammar: str) -> None:
    """Write the beginning of an answer, byte by byte, as an engine would token by token. Raises
    `RequestError` for a grammar that cannot be followed."""
    matcher = matcher_of(grammar, _byte_tokenizer())
    for _ in range(_TRIED):
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        check(matcher)
        dark = mask >> 33  # without white space, of which there may always be more
        byte = 33 + (dark & -dark).bit_length() - 1
        if not dark or byte == _END:
            return
        matcher.consume_token(byte)


def tokenizer_of(
    tokens: Sequence[bytes], ends: Sequence[int], encode: Callable[[str], list[int]]
) -> Any:
    """llguidance's tokenizer of the bytes of tokens."""
    from llguidance import LLTokenizer, TokenizerWrapper

    wrapper = TokenizerWrapper(_Plain([*tokens], ends[0], encode))
    return LLTokenizer(wrapper, eos_token=[*ends])


def _reason(error: str) -> str:
    """Of llguidance's error, without its inner state, in words that say what to change."""
    lines = error.rpartition("failed to compile JSON schema: ")[2].split("\n")
    if lines[0] == "regex parse error:":
        why = next((line[7:] for line in lines if line.startswith("error: ")), "")
        return f"the pattern {lines[1].strip()[:80]!r} cannot be held: {why}"
    if lines[0].startswith("oneOf constraints"):
        return "oneOf cannot be held where a value may fit several branches: use anyOf"
    if "recursion limit exceeded" in lines[0]:
        return TOO_DEEP.message
    if "Regex is empty" in lines[0]:
        return "no text fits all of its patterns, formats and lengths"
    for theirs, ours in (("Unimplemented keys:", "keys"), ("Unknown format:", "the format")):
        lines[0] = lines[0].replace(theirs, f"an answer cannot be held to {ours}")
    return lines[0][:200]


@cache
def _byte_tokenizer() -> Any:
    """llguidance's tokenizer of a model whose tokens are bytes, and an end."""
    tokens = [*(bytes([byte]) for byte in range(_END)), MASKED]
    return tokenizer_of(tokens, [_END], lambda text: list(text.encode()))


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
