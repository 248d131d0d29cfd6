"""The first thing that keeps a text from being JSON, in people's words and where it stands.

Stricter than the json module in four points: no key twice, no NaN or infinity, no number that is
too large for a float, and at most 100 levels. What stands behind a key or a flag with a secret is
never quoted.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from setup.config.json_tokens import Token, tokens
from setup.config.json_words import bare_word, open_text, quoted, stray
from setup.config.keys import KEYS_BY_NAME
from setup.config.secrets import HIDDEN, is_secret

DEEPEST = 100
"""Most brackets inside each other."""
_HIDDEN_WORD = (
    "a value that is secret is no JSON",
    "write it in double quotes, as every text; it is not shown here",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, what to do, and where: line and column count from 1."""

    line: int
    column: int
    message: str
    hint: str


@dataclass(slots=True)
class _Level:
    """An open bracket, and the keys inside it with their places."""

    opened: Token
    keys: dict[str, int] = field(default_factory=dict)
    secret: bool = False
    """What stands here now belongs to a key or a flag with a secret."""
    inside: bool = False
    """All of this bracket does."""

    @property
    def closing(self) -> str:
        return "}" if self.opened.text == "{" else "]"


class _FoundError(Exception):
    """Ends the walk at a fault: character, message, hint."""

    def __init__(self, at: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.at = at
        self.message = message
        self.hint = hint


def find_fault(text: str) -> Fault | None:
    """The first fault; `None` when the text is sound. Any kind of value may be at the top."""
    try:
        _Walk(text).document()
    except _FoundError as found:
        line, column = place(text, found.at)
        return Fault(line, column, found.message, found.hint)
    return None


def place(text: str, at: int) -> tuple[int, int]:
    """Line and column of a character, both from 1."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


class _Walk:
    """One pass over the tokens. Open brackets lie in a list, so depth costs no stack."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: Iterator[Token] = tokens(text)
        self._token: Token | None = next(self._tokens, None)
        self._last: Token | None = None
        self._levels: list[_Level] = []

    def document(self) -> None:
        """Walks through the whole text; raises `_FoundError`."""
        if self._token is None:
            raise _FoundError(0, "the file is empty", 'write at least {"model": "FILE.gguf"}')
        self._value()
        while self._levels:
            self._after_value()
        if self._token is not None:
            self._check_foreign(self._token)
            said = self._token.text if self._token.kind == "mark" else "more"
            raise _FoundError(self._token.at, f"{said} stands after the end", "remove it")

    def _step(self) -> Token:
        """Takes the next token. Raises at the end of the text."""
        token = self._token
        if token is None:
            raise self._unclosed()
        self._last, self._token = token, next(self._tokens, None)
        return token

    def _value(self) -> None:
        """Takes a value; of a bracket only the opening, and the first key behind it."""
        if self._token is None:
            raise self._unclosed()
        token = self._token
        self._check_foreign(token)
        if token.kind == "mark" and token.text in "{[":
            self._open(self._step())
        elif token.kind == "mark":
            raise self._no_value(token)
        elif token.kind == "word" and token.text not in ("true", "false", "null"):
            raise _FoundError(token.at, *(_HIDDEN_WORD if self._secret else bare_word(token.text)))
        else:
            self._check_number(token)
            self._note_flag(self._step())

    def _open(self, token: Token) -> None:
        self._levels.append(_Level(token, secret=self._secret, inside=self._secret))
        if len(self._levels) > DEEPEST:
            raise _FoundError(
                token.at, f"nested too deep: more than {DEEPEST} levels", "flatten it"
            )
        if self._is(self._levels[-1].closing):
            self._close()
        elif token.text == "{":
            self._key()
        else:
            self._value()

    def _close(self) -> None:
        self._step()
        self._levels.pop()

    def _key(self) -> None:
        """Takes a key, its colon and its value."""
        token = self._token
        if token is None:
            raise self._unclosed()
        self._check_foreign(token)
        if token.kind in ("word", "number"):
            raise _FoundError(
                token.at,
                f"the key {self._said(token)} has no quotes",
                f'write "{token.text}"' if not self._secret else "write it in double quotes",
            )
        if token.kind != "text":
            message = f"{self._said(token)} stands where a key belongs"
            raise _FoundError(token.at, message, 'a key is a text in double quotes, such as "port"')
        self._note_key(self._step())
        self._colon(token)
        level = self._levels[-1]
        level.secret = level.inside or is_secret(json.loads(token.text))
        self._value()

    def _note_flag(self, token: Token) -> None:
        """In a list, what follows a flag such as --api-key is secret, up to the next flag."""
        if self._levels and self._levels[-1].opened.text == "[" and token.text[:3] == '"--':
            level = self._levels[-1]
            level.secret = level.inside or is_secret(json.loads(token.text))

    @property
    def _secret(self) -> bool:
        return bool(self._levels) and self._levels[-1].secret

    def _said(self, token: Token) -> str:
        """The token as a message may quote it."""
        known = token.kind == "mark" or token.text.strip('"') in KEYS_BY_NAME
        return HIDDEN if self._secret and not known else quoted(token.text)

    def _note_key(self, token: Token) -> None:
        keys = self._levels[-1].keys
        name = json.loads(token.text)
        if name in keys:
            line, _ = place(self._text, keys[name])
            message = f"the key {self._said(token)} stands here again; it is already in line {line}"
            raise _FoundError(token.at, message, "keep one of the two")
        keys[name] = token.at

    def _colon(self, key: Token) -> None:
        token = self._token
        if token is None:
            raise self._unclosed()
        if self._is(":"):
            self._step()
            return
        said = self._said(key)
        hint = f"write {said}: and then the value"
        if token.text == "=":
            raise _FoundError(token.at, f"= stands where a colon belongs, after {said}", hint)
        self._check_foreign(token)
        raise _FoundError(token.at, f"a colon is missing after the key {said}", hint)

    def _after_value(self) -> None:
        """Takes what follows a value inside a bracket: a comma and the next item, or the end."""
        token, level = self._token, self._levels[-1]
        if token is None:
            raise self._unclosed()
        if self._is(level.closing):
            self._close()
        elif self._is(","):
            self._comma(self._step())
        elif token.kind == "mark" and token.text in "}]":
            raise self._wrong_closing(token)
        else:
            self._check_foreign(token)
            raise self._no_comma(token)

    def _comma(self, comma: Token) -> None:
        level = self._levels[-1]
        if self._is(level.closing):
            message = f"a comma stands before the closing {level.closing}"
            raise _FoundError(comma.at, message, "remove the comma")
        if self._is(","):
            raise _FoundError(comma.end, "two commas with nothing between them", "remove one")
        if level.opened.text == "{":
            self._key()
        else:
            self._value()

    def _is(self, mark: str) -> bool:
        return self._token is not None and self._token.text == mark

    def _check_foreign(self, token: Token) -> None:
        """Raises for what JSON does not have anywhere: comments, other quotes, stray characters."""
        if token.kind == "open text":
            raise _FoundError(*open_text(self._text, token.at))
        if token.kind == "comment":
            start = "#" if token.text[0] == "#" else token.text[:2]
            raise _FoundError(token.at, f"a comment ({start}): JSON has none", "remove the comment")
        if token.kind == "single":
            raise _FoundError(
                token.at, "a text in single quotes", 'write it in double quotes: "..."'
            )
        if token.kind == "quotation mark":
            message = f"the quotation mark {token.text} is not one of JSON's"
            raise _FoundError(token.at, message, 'write the straight one: "')
        if token.kind == "other":
            raise _FoundError(token.at, *stray(token.text))

    def _check_number(self, token: Token) -> None:
        if token.kind != "number":
            return
        digits = token.text.lstrip("-")
        most = sys.get_int_max_str_digits()
        if digits.isdigit() and most and len(digits) > most:
            raise _FoundError(
                token.at, f"a number of {len(digits)} digits", "write a shorter number"
            )
        if not digits.isdigit() and math.isinf(float(token.text)):
            message = f"{self._said(token)} is too large for a number"
            raise _FoundError(token.at, message, "write a smaller number")

    def _no_value(self, token: Token) -> _FoundError:
        before = self._last
        after = f" after {before.text}" if before is not None else ""
        hint = "write a value, or remove the key" if before and before.text == ":" else "remove it"
        return _FoundError(token.at, f"{token.text} stands where a value belongs{after}", hint)

    def _no_comma(self, token: Token) -> _FoundError:
        assert self._last is not None
        line, _ = place(self._text, token.at)
        message = f"a comma is missing here, before {self._said(token)} in line {line}"
        return _FoundError(self._last.end, message, "write a comma between the two")

    def _wrong_closing(self, token: Token) -> _FoundError:
        level = self._levels[-1]
        line, _ = place(self._text, level.opened.at)
        message = f"{token.text} closes nothing: the {level.opened.text} of line {line} is open"
        return _FoundError(token.at, message, f"write {level.closing} first, or instead")

    def _unclosed(self) -> _FoundError:
        opened, closing = self._levels[-1].opened, self._levels[-1].closing
        message = f"the {opened.text} that opens here is never closed"
        return _FoundError(opened.at, message, f"write {closing} where it ends")
