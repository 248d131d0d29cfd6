"""Answers of a given form: which tokens may come next.

A form is JSON of a schema, a limit to the thoughts before an answer, or both. The grammar is
llguidance's. A constraint belongs to one request and is told every token of its answer. What it
forbids has no logit (`engine/sampler.py`), so drafts, sampling and windows work as ever, and the
answer depends on them as little.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engine.errors import RequestError

_MASKED = b"\xff"
"""Before a token's bytes: it is no text, whatever its name."""
_OPTIONS: Any = {"whitespace_pattern": r"( |\n[ \t]{0,16})?"}
"""White space between JSON's tokens: a space, or a line's end with its indent; never more."""


class Words(Protocol):
    """What a grammar must know of a tokenizer."""

    vocab_size: int
    eos_ids: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""

    def token_bytes(self, id: int) -> bytes:
        """The bytes of a token."""

    def is_text(self, id: int) -> bool:
        """False for control tokens."""


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer must be: JSON of `schema` (JSON text; None: anything), from its start or,
    where the model thinks first, behind the first `think_end`, before which stand at most
    `think_most` tokens."""

    schema: str | None = None
    think_end: int | None = None
    think_most: int | None = None


class Constraint:
    """The state of one answer. `matcher`: of its schema, when that is compiled; None: there is no
    schema."""

    def __init__(self, matcher: Future[Any] | None, vocab_size: int, form: Form) -> None:
        self._compiled = matcher
        self._vocab_size = vocab_size
        self._think_end = form.think_end
        self._thoughts_left = form.think_most
        self._mask: npt.NDArray[np.uint8] | None = None

    @property
    def _forced(self) -> int | None:
        """The only token that may be next."""
        return self._think_end if self._thoughts_left == 0 else None

    @property
    def _free(self) -> bool:
        return self._think_end is not None or self._compiled is None

    def allows(self, token: int) -> bool:
        """Whether `token` may be next. Raises `RequestError` for a schema that is too much."""
        if self._forced is not None:
            return token == self._forced
        return self._free or bool(self._bits()[token >> 3] >> (token & 7) & 1)

    def allowed(self) -> npt.NDArray[np.bool_] | None:
        """Which tokens may be next, [vocab]; None: all."""
        if self._forced is not None:
            only = np.zeros(self._vocab_size, np.bool_)
            only[self._forced] = True
            return only
        if self._free:
            return None
        bits = np.unpackbits(self._bits(), bitorder="little", count=self._vocab_size)
        return bits.view(np.bool_)

    def take(self, token: int) -> None:
        """`token` is the next one of the answer."""
        if self._think_end is not None:
            if self._thoughts_left:
                self._thoughts_left -= 1
            if token == self._think_end:
                self._think_end = None
            return
        if self._compiled is None:
            return
        self._mask = None
        matcher = self._compiled.result()
        if not matcher.consume_token(token):
            raise RequestError(f"response_format: {matcher.get_error()}")

    def _bits(self) -> npt.NDArray[np.uint8]:
        assert self._compiled is not None
        if self._mask is None:
            matcher = self._compiled.result()
            if matcher.is_error():
                raise RequestError(f"response_format: {matcher.get_error()}")
            found = np.frombuffer(matcher.compute_bitmask(), np.uint8)
            missing = max(0, -(-self._vocab_size // 8) - len(found))
            self._mask = np.concatenate((found, np.zeros(missing, np.uint8)))
        return self._mask


class Constraints:
    """Makes the constraints of one model. Schemas are compiled beside the windows, by a thread: the
    first token waits for that, the others' do not. `vocab_size` counts the model's logits."""

    def __init__(self, words: Words, vocab_size: int) -> None:
        self._words = words
        self._vocab_size = vocab_size
        self._thread = ThreadPoolExecutor(1, "schemas")

    def make(self, form: Form) -> Constraint:
        """The constraint of an answer that begins."""
        compiled = None
        if form.schema is not None:
            compiled = self._thread.submit(self._compile, form.schema)
        return Constraint(compiled, self._vocab_size, form)

    def _compile(self, schema: str) -> Any:
        from llguidance import LLMatcher

        return LLMatcher(self._tokenizer, grammar_of(schema))

    @cached_property
    def _tokenizer(self) -> Any:
        from llguidance import LLTokenizer, TokenizerWrapper

        words = self._words
        ends = sorted(words.eos_ids)
        if not ends:
            raise RequestError("response_format: this model has no token that ends an answer")
        tokens = [
            (b"" if words.is_text(id) else _MASKED) + words.token_bytes(id)
            for id in range(words.vocab_size)
        ]
        wrapper = TokenizerWrapper(_Plain(tokens, ends[0], words.encode))
        return LLTokenizer(wrapper, eos_token=ends)


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


def grammar_of(schema: str) -> str:
    """The grammar of JSON that fits `schema`. Raises `RequestError` for text that is no JSON."""
    from llguidance import LLMatcher

    try:
        json.loads(schema)
        return str(LLMatcher.grammar_from_json_schema(schema, overrides=_OPTIONS))
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the schema is no JSON object: {error}") from None


def fault_of(schema: str) -> str:
    """Why no answer can be held to `schema`; empty: one can."""
    from llguidance import LLMatcher

    try:
        return str(LLMatcher.validate_grammar(grammar_of(schema)))
    except RequestError as error:
        return error.message
