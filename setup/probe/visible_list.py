"""The value of a variable that lists visible cards: "0,2", "GPU-8932f937" or both.

Sources: the CUDA programming guide on environment variables, ROCm's "GPU isolation techniques", and
PyTorch's reading of CUDA_VISIBLE_DEVICES for cards that are named twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from setup.probe.notes import Notes, plain

_MOST_WORDS = 256
_PREFIX = re.compile("(gpu|mig)-", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class VisibleList:
    """A variable by its name, and the words in it."""

    variable: str
    words: tuple[str, ...]

    @classmethod
    def read(cls, variable: str, text: str) -> VisibleList:
        """The words between commas; an empty text has one, empty."""
        return cls(variable, tuple(word.strip() for word in text.split(",")[:_MOST_WORDS]))

    @property
    def first(self) -> str:
        """What kind of names the list begins with: "GPU-", "MIG-", or empty for numbers."""
        found = _PREFIX.match(self.words[0])
        return found[0].upper() if found else ""

    @property
    def has_numbers(self) -> bool:
        """Whether it begins with a number of a card."""
        return self.words[0][:1].isdigit()

    def positions(self, names: Sequence[str], notes: Notes) -> list[int]:
        """Which of `names` the list shows. The first word that fits none ends it; what follows
        does not count. A card named twice voids the whole list."""
        found: list[int] = []
        for word in self.words:
            place = _named(word, names) if _PREFIX.match(word) else _numbered(word, len(names))
            if isinstance(place, str):
                self.tell_end(word, place, notes)
                break
            if place in found:
                notes.add(f"{self.variable} names {plain(word, 60)} twice: then no card is visible")
                return []
            found.append(place)
        return found

    def tell_end(self, word: str, why: str, notes: Notes) -> None:
        """Says that a word fits nothing, unless it is a usual way to hide every card."""
        if word not in ("", "-1"):
            shown = plain(word, 60)
            notes.add(f"{self.variable}: {shown!r} {why}; it and what follows it count for nothing")


def _numbered(word: str, count: int) -> int | str:
    # As C's strtoul reads it: the digits at the start of "1x" are 1.
    match = re.match(r"\+?(\d{1,9})", word, re.ASCII)
    if match is None or int(match[1]) >= count:
        return f"is no number of a card (0 to {count - 1})"
    return int(match[1])


def _named(word: str, names: Sequence[str]) -> int | str:
    """A name may be cut short, as long as it fits one card only."""
    fits = [i for i, name in enumerate(names) if name.lower().startswith(word.lower())]
    if len(word) <= len("GPU-") or len(fits) != 1:
        return f"is the begin of {len(fits)} names here, not of one"
    return fits[0]
