"""The engine as a child process: its pipes, its log, and what can be said about its death."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from engine.errors import EngineDiedError
from engine.messages import Command, Event, Failed, Quit
from engine.protocol import ProtocolError, format_message, parse_event

LONGEST_LINE = 2**20
LOG_PATIENCE_S = 1.0
_PR_SET_PDEATHSIG = 1
_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that others send, as a rule."""


class EngineProcess:
    """One life of the engine. `death_note` is complete once `events` is exhausted."""

    def __init__(self, process: Process, log: BinaryIO, owns_log: bool) -> None:
        self._process = process
        self._log = log
        self._owns_log = owns_log
        self._tail = b""
        self._last_error = ""
        self._killed_because = ""
        self._logging = asyncio.create_task(self._copy_log())

    @classmethod
    async def start(
        cls, command: Sequence[str], env: Mapping[str, str] | None, log: Path | None
    ) -> EngineProcess:
        """Start `command`; raises `EngineDiedError` when that is not possible."""
        try:
            file = open(log, "ab", buffering=0) if log else sys.stderr.buffer  # noqa: SIM115
        except OSError as error:
            raise EngineDiedError(
                f"the engine's log {log} cannot be written: {error.strerror}",
                hint="Name another file with --log.",
            ) from None
        try:
            # A session of its own: Ctrl-C reaches the server only, which then says QUIT.
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=env,
                limit=LONGEST_LINE,
                start_new_session=True,
                preexec_fn=_die_with_parent(),
            )
        except OSError as error:
            if log:
                file.close()
            raise EngineDiedError(f"the engine cannot be started: {error}") from None
        return cls(process, file, log is not None)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, command: Command) -> None:
        """Queue one line for the engine. Never waits; a dead engine swallows it."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(format_message(command).encode() + b"\n")

    async def events(self) -> AsyncIterator[Event]:
        """Everything that the engine says, until it is dead. Lines of strangers go to the log."""
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:
                self.kill(f"it printed a line of more than {LONGEST_LINE} bytes")
                break
            if not line:
                break
            try:
                event = parse_event(line.decode("utf-8", "replace"))
            except ProtocolError:
                self._write_log(b"stdout: " + line)
                continue
            if isinstance(event, Failed) and not event.rid:
                self._last_error = event.message
            yield event
        await self._process.wait()
        await self._finish_log()

    def kill(self, because: str) -> None:
        """End it now; `because` goes into the death note."""
        self._killed_because = self._killed_because or because
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def death_note(self) -> str:
        """Why it ended, as far as that can be known: for clients and for the log."""
        parts = [self._killed_because or self._ending()]
        if self._last_error:
            parts.append(f"its last error: {self._last_error}")
        last = self._tail.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()
        if last and self._had_last_words:
            parts.append(f"last log line: {last[-300:]}")
        return "; ".join(parts)

    @property
    def _had_last_words(self) -> bool:
        """Whether it could still say why it ended: what was killed wrote of something else."""
        code = self._process.returncode or 0
        return not self._killed_because and code != 0 and -code not in _OUTSIDE

    async def close(self, quit_s: float, terminate_s: float) -> None:
        """QUIT and a closed stdin; after `quit_s` SIGTERM; after `terminate_s` more SIGKILL."""
        self.send(Quit())
        if self._process.stdin is not None:
            self._process.stdin.close()
        steps = ((None, quit_s), (self._process.terminate, terminate_s), (self._process.kill, None))
        for end, patience_s in steps:
            with contextlib.suppress(ProcessLookupError):
                if end is not None:
                    end()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._process.wait()
                break
        await self._finish_log()

    def _ending(self) -> str:
        code = self._process.returncode
        if code is None:
            return "it closed its output"
        if code >= 0:
            return f"it ended with exit code {code}"
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            why = " (perhaps out of memory)" if name == "SIGKILL" else ""
            return f"it was ended by {name}{why}"
        return f"it was ended by signal {-code}"

    async def _finish_log(self) -> None:
        """Wait for the last log lines, but not for a stranger that inherited the pipe."""
        await asyncio.wait([self._logging], timeout=LOG_PATIENCE_S)
        self._logging.cancel()

    async def _copy_log(self) -> None:
        assert self._process.stderr is not None
        try:
            while chunk := await self._process.stderr.read(2**16):
                self._tail = (self._tail + chunk)[-4096:]
                self._write_log(chunk)
        finally:
            if self._owns_log:
                self._log.close()

    def _write_log(self, data: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._log.write(data)
            self._log.flush()


def _die_with_parent() -> Callable[[], None] | None:
    """What the child runs before the engine starts: on Linux it dies when this thread does."""
    if not sys.platform.startswith("linux"):
        return None
    prctl: Callable[[int, int], int] = ctypes.CDLL(None).prctl
    return lambda: (prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), None)[1]
