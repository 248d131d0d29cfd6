"""What a request's admission spent its time on, from its seat to its first token."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Phases:
    """Moments of one admission, in seconds of `time.perf_counter`."""

    asked: float = field(default_factory=time.perf_counter)
    seated: float = 0.0
    """The slot's state is restored or cleared."""
    begun: float = 0.0
    """Its first window begins."""
    last_begun: float = 0.0
    """Its newest window begins, in the end the one that gives the first token."""
    ended: float = 0.0
    """Its newest window is over."""
    save_s: float = 0.0
    """Spent on saving checkpoints."""
    windows: int = 0

    def seat(self) -> None:
        """The slot is ready."""
        self.seated = time.perf_counter()

    def begin(self) -> None:
        """A window with rows of the prompt begins."""
        self.last_begun = time.perf_counter()
        self.begun = self.begun or self.last_begun
        self.windows += 1

    def end(self) -> None:
        """It is over."""
        self.ended = time.perf_counter()

    def sentence(self) -> str:
        """The phases in milliseconds, which add up to the time from `asked` to `ended`."""
        moments = (self.asked, self.seated, self.begun, self.last_begun, self.ended)
        names = ("seat", "wait", "prompt", "first window")
        spent = zip(names, moments[:-1], moments[1:], strict=True)
        phases = ", ".join(f"{name} {1e3 * (to - since):.1f}" for name, since, to in spent)
        return f"{phases}; {self.windows} windows, of them checkpoints {1e3 * self.save_s:.1f}"
