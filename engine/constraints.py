"""Answers of a given form: which tokens may come next.

A form is a grammar, a limit to the thoughts before an answer, or both. A constraint belongs to one
request and is told every token of its answer. What it forbids has no logit (`engine/sampler.py`),
so drafts, sampling and windows work as ever, and the answer depends on them as little.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engine.errors import RequestError
from engine.grammars import FIELD, MASKED, check, matcher_of, tokenizer_of

_KEPT = 16
"""Grammars that stay compiled."""


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
    """What an answer must be: a text of `grammar` (None: any), from its start or, where the model
    thinks first, behind the first `think_end`, before which stand at most `think_most` tokens."""

    grammar: str | None = None
    think_end: int | None = None
    think_most: int | None = None


class Constraint:
    """The state of one answer. `compiled`: the matcher of its grammar where no answer has
    begun; None: there is no grammar."""

    def __init__(self, compiled: Future[Any] | None, vocab_size: int, form: Form) -> None:
        self._compiled = compiled
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
        """Whether `token` may be next. Raises `RequestError` for a grammar that is too much, or
        that lets nothing follow before the answer is whole."""
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
        if not self._matcher.consume_token(token):
            self._check()

    @cached_property
    def _matcher(self) -> Any:
        assert self._compiled is not None
        with _told():
            return self._compiled.result().deep_copy()

    def _check(self) -> None:
        with _told():
            check(self._matcher)

    def _bits(self) -> npt.NDArray[np.uint8]:
        if self._mask is None:
            found = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            self._check()
            missing = max(0, -(-self._vocab_size // 8) - len(found))
            self._mask = np.concatenate((found, np.zeros(missing, np.uint8)))
        return self._mask


@contextmanager
def _told() -> Iterator[None]:
    """Faults of a grammar begin with the key of a request that it came in."""
    try:
        yield
    except RequestError as error:
        raise RequestError(f"{FIELD}: {error.message}") from None


class Constraints:
    """Makes the constraints of one model. Grammars are compiled beside the windows, by a thread:
    the first token waits for that, the others' do not. `vocab_size` counts the model's logits."""

    def __init__(self, words: Words, vocab_size: int) -> None:
        self._words = words
        self._vocab_size = vocab_size
        self._thread = ThreadPoolExecutor(1, "grammars")
        self._compiled: dict[str, Future[Any]] = {}

    def prepare(self) -> Future[Any]:
        """Make what all grammars share, which takes a second, before the first one waits for it."""
        return self._thread.submit(lambda: self._tokenizer)

    def make(self, form: Form) -> Constraint:
        """The constraint of an answer that begins."""
        compiled = None
        if form.grammar is not None:
            compiled = self._compiled.pop(form.grammar, None)
            compiled = compiled or self._thread.submit(self._compile, form.grammar)
            self._compiled[form.grammar] = compiled
            if len(self._compiled) > _KEPT:
                del self._compiled[next(iter(self._compiled))]
        return Constraint(compiled, self._vocab_size, form)

    def _compile(self, grammar: str) -> Any:
        matcher = matcher_of(grammar, self._tokenizer)
        matcher.compute_bitmask()  # the first one costs most; later ones find what it made
        return matcher

    @cached_property
    def _tokenizer(self) -> Any:
        words = self._words
        ends = sorted(words.eos_ids)
        if not ends:
            raise RequestError("this model has no token that ends an answer")
        tokens = [
            (b"" if words.is_text(id) else MASKED) + words.token_bytes(id)
            for id in range(words.vocab_size)
        ]
        return tokenizer_of(tokens, ends, words.encode)
