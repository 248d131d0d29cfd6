"""What the probe could not find out, or wants the user to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_MOST_NOTES = 50
_MOST_LETTERS = 500


class Notes:
    """Collects sentences, each once, in order."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def add(self, text: str) -> None:
        """Keeps a sentence; of a broken machine that says too much, the first 50."""
        if len(self._texts) < _MOST_NOTES:
            self._texts[plain(text, _MOST_LETTERS)] = None

    def all(self) -> tuple[str, ...]:
        """The sentences so far."""
        return tuple(self._texts)

    def guard(self, what: str, function: Callable[[], _T], otherwise: _T) -> _T:
        """What `function` finds, or `otherwise` and a note when it fails.

        Any error counts: a probe with a gap helps its user, a traceback does not.
        """
        try:
            return function()
        except Exception as error:
            self.add(f"{what} could not be examined: {reason(error)}")
            return otherwise


def reason(error: BaseException) -> str:
    """An error in words. Python's own errors say little without their type: "KeyError: 'x.so'"."""
    kind = type(error)
    try:
        text = plain(str(error))
    except Exception:
        text = ""
    if not text:
        return kind.__name__
    return f"{kind.__name__}: {text}" if kind.__module__ == "builtins" else text


def plain(text: str, most: int = 200) -> str:
    """Text from outside on one line: no control characters, at most `most` letters."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * most])
    return " ".join(shown.split())[:most]
