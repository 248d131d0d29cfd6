"""A toy engine in a child process, spoken to by the line protocol."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from engine.messages import Command, Event, PromptRead, Ready, SlotToken, Token
from engine.protocol import format_message, parse_event

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60


class Child:
    """A toy engine; `say` sends, `hear` reads events up to one that fits.

    With a gate, it runs as many windows as `windows` lets it.
    """

    def __init__(self, *moods: str, gated: bool = False) -> None:
        inner, self._gate = os.pipe()
        words = [sys.executable, "-m", "tests.engine.toy_engine", *moods]
        self.process = subprocess.Popen(
            [*words, f"gate={inner}"] if gated else words,
            cwd=ROOT,
            pass_fds=[inner],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        )
        os.close(inner)

    def windows(self, count: int) -> None:
        """Let `count` more windows run; the one after them waits."""
        os.write(self._gate, b"." * count)

    def say(self, *commands: Command) -> None:
        self.write("".join(format_message(command) + "\n" for command in commands))

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def next(self) -> Event:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), "the engine is gone"
        return parse_event(line.decode())

    def hear(self, fits: Callable[[Event], bool]) -> list[Event]:
        events = [self.next()]
        while not fits(events[-1]):
            events.append(self.next())
        return events

    def step_until(self, fits: Callable[[Event], bool]) -> list[Event]:
        """Window by window, up to an event that fits: commands arrive between two windows."""
        events: list[Event] = []
        while not any(map(fits, events)):
            self.windows(1)
            events += self.hear(lambda event: fits(event) or _moves(event))
        return events

    def started(self) -> "Child":
        self.hear(lambda event: isinstance(event, Ready))
        return self

    def close(self) -> tuple[list[Event], str, int]:
        """Close stdin and open the gate; what is still said, the log and the exit code."""
        os.close(self._gate)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        events = [parse_event(line) for line in (out or b"").decode().splitlines()]
        return events, err.decode(), self.process.returncode


def _moves(event: Event) -> bool:
    """True for what every window of a running request prints."""
    return isinstance(event, PromptRead | SlotToken | Token)
