"""How long a working engine may say nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import ValuesView

from engine.server.ticket import Ticket

SLOWEST_READ_TOKENS_PER_S = 50
LARGEST_CHUNK_TOKENS = 32768
CHUNKS_OF_PATIENCE = 3


class Silence:
    """Watches the time since the engine's last line while requests run. Limit 0: no limit.

    While a prompt is read the engine may be silent for longer: for what a large chunk takes on a
    slow machine before the first `PP`, and for three times the slowest chunk seen after it.
    """

    def __init__(self, limit_s: float, running: ValuesView[Ticket]) -> None:
        self._limit_s = limit_s
        self._running = running
        self._last = time.monotonic()
        self._chunk_s = 0.0
        self._busy = asyncio.Event()

    def heard(self) -> None:
        """The engine said something, or has just been given its first work."""
        self._last = time.monotonic()

    def working(self, busy: bool) -> None:
        """Whether any request is with the engine."""
        if busy:
            self._busy.set()
        else:
            self._busy.clear()

    def chunk(self, seconds: float) -> None:
        """A prompt chunk took so long."""
        self._chunk_s = max(self._chunk_s, seconds)

    async def broken(self) -> str:
        """Wait until the limit is passed, and say so in words for the death note."""
        while True:
            await self._busy.wait()
            if not self._limit_s:
                await asyncio.Event().wait()
            asked = [t.cancelled for t in self._running if t.cancelled is not None]
            left = min([self._last, *asked]) + self._allowed_s() - time.monotonic()
            if left <= 0:
                what = "did not stop what it was told to stop" if asked else "said nothing"
                return f"it {what} for {self._allowed_s():g} s"
            await asyncio.sleep(min(left, self._limit_s))

    def _allowed_s(self) -> float:
        """The longest silence that is still no reason to worry."""
        reading = [t for t in self._running if t.phase == "reading"]
        if not reading:
            return self._limit_s
        if self._chunk_s:
            return max(self._limit_s, CHUNKS_OF_PATIENCE * self._chunk_s)
        unread = max(min(len(t.prompt) - t.read, LARGEST_CHUNK_TOKENS) for t in reading)
        return self._limit_s + unread / SLOWEST_READ_TOKENS_PER_S
