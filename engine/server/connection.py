"""A client's connection: the head of a request must come in time."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """uvicorn's, which closes one that is idle after an answer, but waits for ever for the rest of
    a head that has begun, or for the first one. `head_timeout_s`: how long this one does."""

    def __init__(self, head_timeout_s: float, **more: Any) -> None:
        super().__init__(**more)
        self._head_timeout_s = head_timeout_s
        self._too_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._too_late is None:
            self._too_late = self.loop.call_later(self._head_timeout_s, self.transport.close)

    def _forget(self) -> None:
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None
