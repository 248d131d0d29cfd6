"""Cuts JSON text into tokens, and knows what people write instead of JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "text", "open text", "number", "word", "mark", "comment", "single", "quotation mark", "other"
]

# In order: what comes first wins. Repeated parts are single characters, so that no text, however
# long, makes the match slow.
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("blank", r"[ \t\r\n]+"),
    ("text", r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"'),
    ("open_text", '"'),
    ("comment", r"//[^\n]*|\#[^\n]*|/\*"),
    ("mark", r"[{}\[\],:]"),
    ("single", r"'[^'\n]*'?"),
    ("quotation_mark", r"[\u2018-\u201f\u2039\u203a\xab\xbb]"),
    ("number", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.+-])"),
    ("word", r"[\w.+$-]+"),
    ("other", r"."),
)
_TOKEN = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _PATTERNS), re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text; `at` counts characters from 0. An open text is only its first quote."""

    kind: Kind
    text: str
    at: int

    @property
    def end(self) -> int:
        """The character after it."""
        return self.at + len(self.text)


def tokens(text: str) -> Iterator[Token]:
    """The tokens of `text` in order, blanks left out."""
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        if kind != "blank":
            yield Token(_KINDS[kind or ""], found[0], found.start())


_KINDS: dict[str, Kind] = {
    "text": "text",
    "open_text": "open text",
    "comment": "comment",
    "mark": "mark",
    "single": "single",
    "quotation_mark": "quotation mark",
    "number": "number",
    "word": "word",
    "other": "other",
}
