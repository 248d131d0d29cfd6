"""Keeps an engine process alive: starts it, watches it, buries it and starts the next one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal

from engine.errors import EngineDiedError
from engine.messages import Event, Ready
from engine.server.board import Board
from engine.server.engine_process import EngineProcess
from engine.server.options import ServerOptions
from engine.server.silence import Silence

State = Literal["loading", "ready", "restarting", "failed", "stopped"]
log = logging.getLogger("strata.server")

LONGEST_BACKOFF_S = 60.0
LOADING_PATIENCE_S = 0.5
"""An engine that is still loading has nothing to save: it is ended after this long."""


class Lives:
    """The engine's lives, one after the other.

    After a death the next life begins at once, then with pauses that double, and after
    `engine_restarts` deaths in a row (no answer between them) only when somebody asks (`ask`).
    """

    def __init__(
        self,
        options: ServerOptions,
        silence: Silence,
        board: Board,
        on_event: Callable[[Event], None],
        on_death: Callable[[str, bool], None],
    ) -> None:
        self.options = options
        self.state: State = "loading"
        self.process: EngineProcess | None = None
        self.started = 0
        """Lives that got ready."""
        self.deaths = 0
        self.last_death = ""
        self._loaded = False
        self._in_a_row = 0
        self._silence = silence
        self._board = board
        self._on_event = on_event
        self._on_death = on_death

    @property
    def stopped(self) -> bool:
        """The server is on its way out."""
        return self.state == "stopped"

    def works(self) -> None:
        """An answer was completed: deaths before it do not count any more."""
        self._in_a_row = 0

    def ask(self) -> None:
        """A request came: an engine that was given up gets one more life."""
        if self.state == "failed":
            self._in_a_row = self.options.engine_restarts
            self._enter("restarting")

    async def run(self) -> None:
        """Until `stop`. Raises `EngineDiedError` when the first life never gets ready."""
        while not self.stopped:
            reason = await self._one_life()
            if self.stopped:
                break
            if self.started == 0:
                self._enter("stopped")
                raise EngineDiedError(
                    f"the engine did not start: {reason}", "the engine's log says more"
                )
            await self._bury(reason)

    def refuse(self) -> None:
        """From now on nothing new is taken."""
        self._enter("stopped")

    async def close(self) -> None:
        """End the engine, politely first."""
        if self.process is not None:
            quit_s = self.options.quit_s
            await self.process.close(quit_s if self._loaded else LOADING_PATIENCE_S, quit_s)

    async def _one_life(self) -> str:
        """Start an engine, pass on what it says until it is dead, and say why it died."""
        options = self.options
        try:
            process = await EngineProcess.start(options.engine, options.engine_env, options.log)
        except EngineDiedError as error:
            return error.message
        self.process = process
        self._loaded = False
        if self.stopped:
            await self.close()
        guard = asyncio.create_task(self._guard(process))
        try:
            async for event in process.events():
                self._silence.heard()
                if isinstance(event, Ready):
                    self.started += 1
                    self._loaded = True
                    self._enter("stopped" if self.stopped else "ready")
                self._on_event(event)
        finally:
            guard.cancel()
            self.process = None
        return process.death_note()

    async def _guard(self, process: EngineProcess) -> None:
        """Kill an engine that does not get ready, or that is silent while it has work."""
        limit_s = self.options.engine_ready_s
        if not await self._board.until(lambda: self.state in ("ready", "stopped"), limit_s or None):
            process.kill(f"it was not ready after {limit_s:g} s")
            return
        process.kill(await self._silence.broken())

    async def _bury(self, reason: str) -> None:
        self.deaths += 1
        self._in_a_row += 1
        self.last_death = reason
        tell = self.options.announce or log.error
        tell(f"the engine died: {reason}")
        gives_up = self._in_a_row > self.options.engine_restarts
        self._enter("failed" if gives_up else "restarting")
        self._on_death(reason, gives_up)
        if gives_up:
            await self._board.until(lambda: self.state != "failed")
        elif self._in_a_row > 1:
            pause = self.options.restart_backoff_s * 2 ** (self._in_a_row - 2)
            await self._board.until(lambda: self.stopped, min(pause, LONGEST_BACKOFF_S))

    def _enter(self, state: State) -> None:
        self.state = state
        self._board.changed()
