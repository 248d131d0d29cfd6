"""Where a command's words go: results to stdout, everything else to stderr.

What is printed for people has its control characters escaped: names of cards, keys and files come
from elsewhere, and a terminal would obey them.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import TextIOWrapper
from typing import Any, TextIO

from rich.console import Console as RichConsole
from rich.table import Table
from rich.text import Text

from engine.errors import StrataError
from strata_cli.printable import json_text, line, lines

_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


@dataclass(frozen=True, slots=True)
class Console:
    """Output of one command. With `json` the only thing on stdout is one document."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False

    def document(self, value: Any) -> None:
        """The result of a command that was asked for JSON."""
        out = sys.stdout
        write(out, json_text(value, getattr(out, "encoding", None) or "utf-8") + "\n")

    def result(self, text: str = "", end: str = "\n") -> None:
        """A line (or, with another `end`, a piece) of the result, for people."""
        if not self.json:
            out = sys.stdout
            # A program or a file gets an answer as the model gave it.
            is_exact = end != "\n" and out is not None and not out.isatty()
            write(out, text + end if is_exact else _said(text, end))

    def drawing(self, text: str) -> None:
        """Lines of the result that are drawn with characters, in colours or not, for people."""
        if not self.json:
            parts = _COLOUR.split(text)
            said = [part if index % 2 else lines(part) for index, part in enumerate(parts)]
            write(sys.stdout, "".join(said) + "\n")

    def config(self, value: Any) -> None:
        """A JSON text as the result, for people."""
        if not self.json:
            replace(self, json=True).document(value)

    def note(self, text: str, end: str = "\n") -> None:
        """Progress; silent with -q."""
        if not self.quiet:
            write(sys.stderr, _said(text, end))

    def detail(self, text: str, end: str = "\n") -> None:
        """More of it, with -v."""
        if self.verbose:
            self.note(text, end)

    def warn(self, text: str) -> None:
        """Something the user should know; not silenced."""
        write(sys.stderr, f"warning: {line(text)}\n")

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]], *, result: bool) -> None:
        """A table as result (stdout) or as progress (stderr)."""
        if self.json if result else self.quiet:
            return
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for title in titles:
            table.add_column(Text(line(title)), overflow="fold")
        for row in rows:
            table.add_row(*(Text(line(cell)) for cell in row))
        out = sys.stdout if result else sys.stderr
        if out is None:
            return
        # Off a terminal a line is as long as it needs to be: it is read by programs.
        width = None if out.isatty() else 200
        rich = RichConsole(file=out, highlight=False, soft_wrap=False, width=width)
        try:
            rich.print(table)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritten(out, error) from None


def write(out: TextIO | None, text: str) -> None:
    """Writes all of it now; `None` is a stream that was closed before the start.

    Raises `StrataError` when it cannot be written, but lets a reader that left through.
    """
    if out is None:
        return
    try:
        out.write(text)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritten(out, error) from None


def escape_what_cannot_be_encoded() -> None:
    """Makes stdout and stderr take any text, whatever their encoding."""
    for out in (sys.stdout, sys.stderr):
        if isinstance(out, TextIOWrapper):
            out.reconfigure(errors="backslashreplace")


def silence(out: TextIO | None) -> None:
    """Lets what is still to be written go nowhere: Python would fail again when it ends."""
    if out is None:
        return
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def _unwritten(out: TextIO, error: OSError) -> StrataError:
    silence(out)
    name = "stderr" if out is sys.stderr else "stdout"
    return StrataError(
        f"{name} cannot be written: {error.strerror or error}", "send it to another place"
    )


def _said(text: str, end: str) -> str:
    """A line has one line, perhaps a blank one before it; a piece of a text may have several."""
    if end != "\n":
        return lines(text) + end
    said = text.lstrip("\n")
    return "\n" * (len(text) - len(said)) + line(said) + end
