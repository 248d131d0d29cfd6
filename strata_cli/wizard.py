"""Asks setup's questions on a terminal: numbered answers, Enter for the recommended one."""

from __future__ import annotations

import select
import sys
import textwrap
from io import TextIOWrapper
from typing import TextIO

from rich.console import Console as RichConsole
from rich.text import Text

from engine.errors import ConfigError
from setup.wizard.question import Asking, Option
from strata_cli.printable import line

_INDENT = 3
_WIDEST = 100
"""Longer lines are hard to read, however wide the terminal is."""


class Wizard:
    """Puts questions to `err` and reads answers from `source`, one line each."""

    def __init__(self, source: TextIO | None = None, err: TextIO | None = None) -> None:
        self._source = sys.stdin if source is None else source
        if isinstance(self._source, TextIOWrapper):
            # Bytes that are no text are an answer of no use, and not an error of ours.
            self._source.reconfigure(errors="replace")
        self._out = RichConsole(file=sys.stderr if err is None else err, highlight=False)

    def __call__(self, asking: Asking) -> Option:
        """The answer to one question; asks again until there is one.

        Raises `ConfigError` at the end of the input, and lets Ctrl-C through.
        """
        early = _waiting(self._source)
        self._show(asking)
        while True:
            line = self._read(asking)
            text = line.strip()
            if early and not text:
                self._say(
                    "Enter was pressed before this question stood here, so it does not count."
                )
            elif text == "?":
                self._say(asking.question.more)
            else:
                try:
                    option = asking.choose(text)
                except ConfigError as error:
                    self._say(f"{error.message}: {error.hint}" if error.hint else error.message)
                else:
                    if early:
                        self._say(f"Typed before this question stood here: {text}.")
                    return option
            early = _waiting(self._source)

    def _show(self, asking: Asking) -> None:
        self._out.print()
        self._lines(f"{asking.number}. {asking.question.title}", 0, style="bold")
        self._say(asking.why)
        self._out.print()
        for index, option in enumerate(asking.options):
            mark = " (recommended)" if index == asking.recommended else ""
            label = f"{index + 1}  {option.label}{mark}"
            self._lines(label, _INDENT, hang=3, style="bold" if mark else "")
            self._lines(option.why, _INDENT + 3)
        self._out.print()

    def _read(self, asking: Asking) -> str:
        self._out.print(Text(_prompt(asking)), end="", soft_wrap=True)
        self._out.file.flush()
        line = self._source.readline()
        if line:
            return line
        self._out.print()
        raise ConfigError(
            f"the input ended at the question: {asking.question.title}",
            f"{asking.question.flag} decides it; --yes takes every recommended answer. "
            "Nothing was written",
        )

    def _say(self, text: str) -> None:
        self._lines(text, _INDENT)

    def _lines(self, text: str, indent: int, *, hang: int = 0, style: str = "") -> None:
        """Prints `text` in lines of the terminal's width, the later ones `hang` further in."""
        width = max(20, min(self._out.width, _WIDEST) - indent)
        for row in textwrap.wrap(
            line(text), width, subsequent_indent=" " * hang, break_on_hyphens=False
        ):
            self._out.print(Text(" " * indent + row, style=style), soft_wrap=True)


def _prompt(asking: Asking) -> str:
    typed = f", {asking.question.typed}" if asking.question.typed else ""
    return f"   {asking.numbers}{typed}, ? for more, Enter for {asking.recommended + 1}: "


def _waiting(source: TextIO) -> bool:
    """Whether a line was typed that nobody has read yet."""
    try:
        return source.isatty() and bool(select.select([source], [], [], 0)[0])
    except (OSError, ValueError):
        # Windows has no select for terminals: what was typed ahead there counts as an answer.
        return False
