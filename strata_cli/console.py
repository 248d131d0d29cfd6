"""Where a command's words go: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console as RichConsole
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Console:
    """Output of one command. With `json` the only thing on stdout is one document."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False

    def document(self, value: Any) -> None:
        """The result of a command that was asked for JSON."""
        print(json.dumps(value, indent=1, ensure_ascii=False), flush=True)

    def result(self, text: str = "", end: str = "\n") -> None:
        """A line (or, with another `end`, a piece) of the result, for people."""
        if not self.json:
            print(text, end=end, flush=True)

    def note(self, text: str, end: str = "\n") -> None:
        """Progress; silent with -q."""
        if not self.quiet:
            print(text, file=sys.stderr, end=end, flush=True)

    def detail(self, text: str, end: str = "\n") -> None:
        """More of it, with -v."""
        if self.verbose:
            self.note(text, end)

    def warn(self, text: str) -> None:
        """Something the user should know; not silenced."""
        print(f"warning: {text}", file=sys.stderr, flush=True)

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]], *, result: bool) -> None:
        """A table as result (stdout) or as progress (stderr)."""
        if self.json if result else self.quiet:
            return
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for title in titles:
            table.add_column(title, overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        out = sys.stdout if result else sys.stderr
        # Off a terminal a line is as long as it needs to be: it is read by programs.
        width = None if out.isatty() else 200
        RichConsole(file=out, highlight=False, soft_wrap=False, width=width).print(table)
