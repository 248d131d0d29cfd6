"""`strata` in a real pseudo-terminal of 80 columns."""

from __future__ import annotations

import os
import re
import signal
import sys
from functools import partial
from pathlib import Path
from types import TracebackType

import pexpect

ROOT = Path(__file__).parents[2]
PROMPT = r"Enter for \d+: "
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """One `strata` command on a terminal; `env` is added to the environment."""

    def __init__(self, folder: Path, *words: str, shell: str = "", **env: str) -> None:
        command = [sys.executable, "-m", "strata_cli", *words]
        if shell:
            quoted = " ".join(f"'{word}'" for word in command)
            command = ["/bin/sh", "-c", shell.format(command=quoted)]
        kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.child = pexpect.spawn(
            command[0],
            command[1:],
            cwd=str(folder),
            env={
                **kept,
                "PYTHONPATH": str(ROOT),
                "XDG_CONFIG_HOME": str(folder / ".config"),
                "TERM": "xterm-256color",
                **env,
            },
            dimensions=(24, 80),
            encoding="utf-8",
            codec_errors="replace",
            timeout=60,
            # A shell starts background jobs with Ctrl-C switched off, and children inherit that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        self.raw = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.child.close(force=True)

    def until(self, pattern: str = PROMPT) -> str:
        """What came up to `pattern` and with it, without escape sequences."""
        self.child.expect(pattern)
        return self._take(self.child.before + self.child.after)

    def answer(self, text: str = "") -> None:
        """Waits for a question and types."""
        self.until()
        self.child.sendline(text)

    def end(self) -> int:
        """Waits for the end; the exit code."""
        self.child.expect(pexpect.EOF)
        self._take(self.child.before)
        self.child.close()
        assert self.child.exitstatus is not None
        return int(self.child.exitstatus)

    @property
    def text(self) -> str:
        """All that was read so far, as people see it."""
        return _ESCAPES.sub("", self.raw).replace("\r\n", "\n")

    def _take(self, piece: str) -> str:
        self.raw += piece
        return _ESCAPES.sub("", piece).replace("\r\n", "\n")
