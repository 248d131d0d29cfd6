"""Waiting for a condition of state that lives on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Board:
    """`changed` wakes everybody in `until`, who then look whether their condition holds."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._waiting = 0

    def changed(self) -> None:
        """Something that a condition may depend on is different now."""
        if self._waiting:
            self._event.set()
            self._event = asyncio.Event()

    async def until(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until `condition()` is true; False when `timeout_s` passes first."""
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await self._event.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True
