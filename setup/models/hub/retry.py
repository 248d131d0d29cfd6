"""How long a download is patient, and the pauses between its attempts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from engine.errors import ConfigError

Note = Callable[[str], None]
T = TypeVar("T")


class TransientError(Exception):
    """An attempt failed in a way that another one may not. `wait_s`: how long the server asks."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The patience of a download. 30 attempts and pauses up to 10 s: the original's setup."""

    attempts: int = 30
    """Failures in a row, without a new byte between them, that end a file."""
    hub_attempts: int = 5
    """Failures in a row that end a question to the hub."""
    first_pause_s: float = 1.0
    """Doubled after each failure."""
    most_pause_s: float = 10.0
    most_asked_pause_s: float = 300.0
    """Longest pause that a server may ask for."""
    connect_s: float = 30.0
    question_s: float = 60.0
    """Time for a question to the hub, and for the beginning of the answer with a file."""
    listing_s: float = 300.0
    """Time for all pages of a folder's list."""
    stall_s: float = 60.0
    """Time without a byte after which a connection counts as dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Limits, and how to wait and to tell about it."""

    limits: Limits
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    note: Note

    def pause(self, error: TransientError, failures: int, attempts: int, what: str) -> None:
        """Waits before the next attempt. Raises `ConfigError` when there is none left, or when the
        server asks for too long a pause."""
        limits = self.limits
        wait = min(limits.first_pause_s * 2.0 ** min(failures - 1, 60), limits.most_pause_s)
        if error.wait_s is not None:
            wait = max(wait, error.wait_s)
        if wait > max(limits.most_asked_pause_s, limits.most_pause_s):
            raise ConfigError(
                f"{what}: {error.reason}, and asks for a pause of {wait:.0f} s",
                "run the same command later: what is there already is kept",
            )
        if failures >= attempts:
            raise ConfigError(
                f"{what}: {error.reason} ({failures} failures in a row)",
                "check the connection and run the same command again: it goes on where it stopped",
            )
        self.note(f"{what}: {error.reason}; next attempt in {wait:.0f} s")
        self.sleep(wait)

    def ask(self, question: Callable[[], T], what: str) -> T:
        """The answer to a question, asked `hub_attempts` times."""
        failures = 0
        while True:
            try:
                return question()
            except TransientError as error:
                failures += 1
                self.pause(error, failures, self.limits.hub_attempts, what)
