"""How far a download is: a bar on a terminal, a line for each tenth elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console as RichConsole
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from setup.models.disk_space import decimal_size

if TYPE_CHECKING:
    from strata_cli.console import Console

_EVERY_S = 0.25


class DownloadView:
    """What `setup.models.download.download` reports to; used with `with`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = None
        if sys.stderr.isatty() and not console.quiet:
            self._bar = Progress(
                TextColumn("{task.percentage:>3.0f}%"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=RichConsole(file=sys.stderr),
            )
            self._task = self._bar.add_task("", total=None)
        self._shown = 0.0
        self._tenth = -1
        self._notes: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """All that was told so far: a document has it, too."""
        return tuple(self._notes)

    def note(self, text: str) -> None:
        """A sentence on the way."""
        self._notes.append(text)
        self._console.note(text)

    def __enter__(self) -> DownloadView:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done_bytes: int, total_bytes: int, file: str) -> None:
        if self._bar is not None:
            now = time.monotonic()
            if now - self._shown > _EVERY_S or done_bytes == total_bytes:
                self._shown = now
                self._bar.update(self._task, completed=done_bytes, total=total_bytes)
            return
        tenth = 10 * done_bytes // max(1, total_bytes)
        if tenth != self._tenth:
            self._tenth = tenth
            done, total = decimal_size(done_bytes), decimal_size(total_bytes)
            self._console.note(f"downloaded {done} of {total}, at {file}")
