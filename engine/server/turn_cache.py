"""Turns of a chat that were encoded before: a next turn encodes only what is new.

A control token ends a piece of text for the tokenizer, so that what begins at one has the same ids
whatever stands before it.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection

MOST_CHARACTERS = 16_000_000


class TurnCache:
    """Encodes prompts, and keeps the ids of up to `most` characters of turns, those that were used
    last. May be called from any thread.

    encode: the ids of a text in which names of control tokens are these tokens.
    """

    def __init__(
        self, encode: Callable[[str], list[int]], turn: str, most: int = MOST_CHARACTERS
    ) -> None:
        """`turn`: the name of the token that begins a turn, see `splits`; "": there is none."""
        self._encode = encode
        self._turn = turn
        self._most = most
        self._kept: OrderedDict[str, array[int]] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def encode(self, text: str) -> list[int]:
        """The ids of `text`."""
        if not self._turn or self._turn not in text:
            return self._encode(text)
        begin, *turns = text.split(self._turn)
        ids = self._encode(begin) if begin else []
        for turn in turns:
            ids.extend(self._of(self._turn + turn))
        return ids

    def _of(self, turn: str) -> array[int]:
        with self._lock:
            if turn in self._kept:
                self._kept.move_to_end(turn)
                return self._kept[turn]
        made = array("i", self._encode(turn))
        with self._lock:
            if turn not in self._kept:
                self._kept[turn] = made
                self._characters += len(turn)
            while self._characters > self._most:
                old, _ = self._kept.popitem(last=False)
                self._characters -= len(old)
        return made


def splits(token: str, others: Collection[str]) -> bool:
    """Whether every `token` in a text is that token: none of `others` can take a part of it."""
    return not any(
        token in other
        or any(token[:size] == other[-size:] for size in range(1, len(token)))
        or any(token[-size:] == other[:size] for size in range(1, len(token)))
        for other in others
        if other != token
    )
