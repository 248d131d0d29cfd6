"""What a question is: data that a terminal, a test or `--yes` can answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.errors import ConfigError
from setup.wizard.situation import Situation


@dataclass(frozen=True, slots=True)
class Option:
    """One answer. `words` may be typed instead of its number."""

    value: Any
    label: str
    why: str = ""
    words: tuple[str, ...] = ()
    needs: str = ""
    """The capability without which it is not offered."""


@dataclass(frozen=True, slots=True)
class Menu:
    """The options as they stand in one situation; `recommended` is an index into them."""

    options: tuple[Option, ...]
    recommended: int = 0


Read = Callable[[Situation, str], Option]
"""Reads an answer that is none of the options; `ConfigError` says why it cannot be one."""

Settle = Callable[[Situation, Any, bool], Situation]
"""What an answer changes: the situation, the option's value, whether it was the recommended one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of setup. `key` is the field of `Answers` that it fills."""

    key: str
    flag: str
    """What decides it on the command line."""
    title: str
    why: Callable[[Situation], str]
    more: str
    """Told when the person asks for more."""
    applies: Callable[[Situation], bool]
    menu: Callable[[Situation], Menu]
    read: Read | None = None
    typed: str = ""
    """What may be typed beside a number, for the line that waits for the answer."""
    settle: Settle | None = None
    needs: tuple[str, ...] = ()
    """Capabilities, one of which the engine must have for the question to make sense."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A question as it is put to a person."""

    question: Question
    situation: Situation
    why: str
    options: tuple[Option, ...]
    recommended: int

    def choose(self, text: str) -> Option:
        """The option that `text` means: a number, one of its words, or what the question reads.

        Nothing means the recommended one. `ConfigError` says what would be an answer.
        """
        word = text.strip()
        if not word:
            return self.options[self.recommended]
        if word.isascii() and word.isdigit() and 1 <= int(word) <= len(self.options):
            return self.options[int(word) - 1]
        for option in self.options:
            if word.casefold() in (name.casefold() for name in option.words):
                return option
        if self.question.read is not None:
            return self.question.read(self.situation, word)
        raise ConfigError(
            f"{word!r} is not an answer",
            f"type {self.numbers}, or Enter for {self.recommended + 1}",
        )

    @property
    def settled(self) -> bool:
        """True when one answer is left and no other may be typed: nobody needs to be asked."""
        return len(self.options) == 1 and self.question.read is None

    @property
    def number(self) -> int:
        """Which question of this run it is, from 1."""
        return self.situation.questions_put + 1

    @property
    def numbers(self) -> str:
        """The numbers that may be typed."""
        count = len(self.options)
        return f"1 to {count}" if count > 2 else "1 or 2" if count == 2 else "1"


def put(question: Question, situation: Situation) -> Asking | None:
    """The question as it is asked now; `None` when there is nothing to ask.

    Nothing to ask: it is answered, the engine lacks what it is about, or it does not apply.
    """
    has = situation.capabilities.has
    if getattr(situation.answers, question.key) is not None:
        return None
    if question.needs and not any(has(name) for name in question.needs):
        return None
    if not question.applies(situation):
        return None
    menu = question.menu(situation)
    best = menu.options[menu.recommended]
    options = tuple(option for option in menu.options if not option.needs or has(option.needs))
    return Asking(question, situation, question.why(situation), options, options.index(best))
