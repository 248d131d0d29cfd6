"""An end for exchanges with a server that always sends one more byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from setup.models.hub.retry import TransientError

# Each exchange has a connection of its own, so that its beginning is seen here.
ONE_EXCHANGE = {"Connection": "close"}


class TimeLimit:
    """Cuts the connection of an exchange after so many seconds, whatever it does. Used with `with`.

    The timeouts of httpx begin anew with every byte. Give `extensions` to the request, and
    `ONE_EXCHANGE` to its headers. At the end raises `TransientError` when the time was over.
    """

    def __init__(self, host: str, seconds: float) -> None:
        self._host = host
        self._seconds = seconds
        self._over = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    @property
    def extensions(self) -> dict[str, Callable[[str, Mapping[str, Any]], None]]:
        """What a request needs to be watched; httpx hands it on to those of a redirect."""
        return {"trace": self._trace}

    def lift(self) -> None:
        """What comes from now on may take as long as it likes."""
        self._timer.cancel()

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self._over:
                self._cut()

    def _cut(self) -> None:
        self._over = True
        if self._socket is not None:
            # Closed is another thread's business: this only makes its waiting end.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> TimeLimit:
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        # Ctrl-C stays what it is.
        if self._over and (error is None or isinstance(error, Exception)):
            raise TransientError(
                f"{self._host}: no whole answer within {self._seconds:g} s"
            ) from None
