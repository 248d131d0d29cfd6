"""The engine's two ends of the pipe: a thread that reads commands, a thread that writes lines.

Both work on file descriptors, without Python's buffers: a thread that waits in a buffered stdin
would hold a lock that the interpreter needs at its end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from engine.messages import Command, Event, Failed, Quit
from engine.protocol import ProtocolError, format_message, parse_command

_CHUNK_BYTES = 1 << 16


class Inbox:
    """Commands as they arrive on `fd`; a line that cannot be read is its own answer, a `Failed`.

    `None` is the end of the input. After `Quit` the process has `quit_s` seconds to end by itself;
    then `end_now` is called, whatever the engine is doing.
    """

    def __init__(self, fd: int, end_now: Callable[[], None], quit_s: float = 2.0) -> None:
        self._fd = fd
        self._end_now = end_now
        self._quit_s = quit_s
        self._queue: SimpleQueue[Command | Failed | None] = SimpleQueue()
        self._ended = threading.Event()
        threading.Thread(target=self._read, name="inbox", daemon=True).start()

    def take(self, *, wait: bool) -> list[Command | Failed | None]:
        """Everything that has arrived, in order; with `wait` at least one."""
        taken = [self._queue.get()] if wait else []
        while True:
            try:
                taken.append(self._queue.get_nowait())
            except Empty:
                return taken

    def ended(self) -> None:
        """The engine is on its way out."""
        self._ended.set()

    def _read(self) -> None:
        rest: list[bytes] = []
        while data := _read_some(self._fd):
            *lines, last = data.split(b"\n")
            for line in lines:
                self._put(b"".join([*rest, line]))
                rest = []
            rest.append(last)
        if any(rest):
            self._put(b"".join(rest))
        self._queue.put(None)

    def _put(self, line: bytes) -> None:
        try:
            command = parse_command(line.decode("utf-8", "replace"))
        except ProtocolError as error:
            self._queue.put(Failed(error.message, error.rid))
            return
        self._queue.put(command)
        if isinstance(command, Quit) and not self._ended.wait(self._quit_s):
            self._end_now()


class Outbox:
    """Lines to `fd`, each written as soon as the reader takes it; `send` never waits for that."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._queue: SimpleQueue[Event | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="outbox", daemon=True)
        self._thread.start()

    @property
    def broken(self) -> bool:
        """True when nobody reads any more."""
        return not self._thread.is_alive()

    def send(self, event: Event) -> None:
        """Queue one line."""
        self._queue.put(event)

    def close(self, patience_s: float) -> None:
        """Write what is queued, for at most `patience_s` seconds."""
        self._queue.put(None)
        self._thread.join(patience_s)

    def _write(self) -> None:
        try:
            while (event := self._queue.get()) is not None:
                data = memoryview(f"{format_message(event)}\n".encode())
                while data:
                    data = data[os.write(self._fd, data) :]
        except OSError:
            return


def _read_some(fd: int) -> bytes:
    try:
        return os.read(fd, _CHUNK_BYTES)
    except OSError:
        return b""
