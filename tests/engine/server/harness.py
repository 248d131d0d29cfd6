"""Runs a server with the scripted engine, and lets tests wait for what the engine sees."""

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

from engine.server.app import Server, bind
from engine.server.options import ServerOptions
from engine.server.text_model import TextModel
from tests.engine.server.byte_text import ByteText

HANG_GUARD_S = 15.0
ROOT = Path(__file__).parents[3]
ENGINE = (sys.executable, "-m", "tests.engine.server.scripted_engine")


class Control:
    """The other end of the scripted engine's control socket, over all its lives."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.lines: list[str] = []
        self._marks = 0
        self._changed = threading.Condition()
        self._engine: socket.socket | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def send(self, line: str) -> None:
        assert self._engine is not None
        self._engine.sendall(line.encode() + b"\n")

    def wait_for(self, start: str, count: int = 1) -> list[str]:
        """Wait until `count` lines begin with `start`, and return them."""
        return self.wait_until(
            lambda: (found := self.starting(start)) and len(found) >= count and found, start
        )

    def wait_until(self, condition: Callable[[], Any], what: str = "") -> Any:
        with self._changed:
            assert self._changed.wait_for(condition, HANG_GUARD_S), (what, self.lines)
            return condition()

    def starting(self, start: str) -> list[str]:
        return [line for line in self.lines if line.startswith(start)]

    def catch_up(self) -> None:
        """Wait until every line about what the engine has read so far is here."""
        self._marks += 1
        self.send(f"mark {self._marks}")
        self.wait_until(lambda: f"mark {self._marks}" in self.lines, "a mark")

    @property
    def pid(self) -> int:
        return int(self.starting("start")[-1].split()[1])

    def _accept(self) -> None:
        while True:
            try:
                self._engine, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(self._engine,), daemon=True).start()

    def _read(self, engine: socket.socket) -> None:
        try:
            for line in engine.makefile():
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        except OSError:
            pass


class Running:
    """A server in a thread of this process."""

    def __init__(self, server: Server, control: Control) -> None:
        self.server = server
        self.control = control
        self.url = f"http://127.0.0.1:{server.port}"
        self.http = httpx.Client(base_url=self.url, timeout=HANG_GUARD_S)

    def client(self, **more: Any) -> OpenAI:
        more = {"api_key": "none", "max_retries": 0, "timeout": HANG_GUARD_S, **more}
        return OpenAI(base_url=f"{self.url}/v1", **more)

    def until(self, condition: Callable[[Server], bool]) -> None:
        """Wait on the server's own loop until its state fulfils `condition`."""
        board, loop = self.server.bridge.board, self.server._loop
        assert loop is not None
        wait = board.until(lambda: condition(self.server), HANG_GUARD_S)
        assert asyncio.run_coroutine_threadsafe(wait, loop).result(HANG_GUARD_S + 5)

    def order_of(self, send: Callable[[], Any]) -> str:
        """The line by which the engine tells of the request that `send` makes."""
        self.control.catch_up()
        before = len(self.control.starting("bgen"))
        send()
        return self.control.wait_for("bgen", before + 1)[before]

    def chat(self, content: str, **more: Any) -> httpx.Response:
        messages = [{"role": "user", "content": content}]
        return self.http.post("/v1/chat/completions", json={"messages": messages, **more})


def environment(control: Control, **settings: Any) -> dict[str, str]:
    script = json.dumps({"control": control.port, **settings})
    return {**os.environ, "STRATA_TEST_ENGINE": script, "PYTHONPATH": str(ROOT)}


@contextmanager
def running(
    engine: dict[str, Any] | None = None,
    ready: bool = True,
    command: tuple[str, ...] = ENGINE,
    text: TextModel | None = None,
    **options: Any,
) -> Iterator[Running]:
    """A server on a free port; `engine` are settings of the scripted engine."""
    control = Control()
    more = {"quit_s": 5.0, "shutdown_grace_s": 0.0, "restart_backoff_s": 0.01, **options}
    asked = ServerOptions(
        engine=command, engine_env=environment(control, **(engine or {})), port=0, **more
    )
    server = Server(asked, text or ByteText(), bind(asked))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.listening.wait(HANG_GUARD_S)
        run = Running(server, control)
        if ready:
            run.until(lambda s: s.bridge.lives.state == "ready")
        yield run
    finally:
        server.stop()
        thread.join(HANG_GUARD_S)
        control.close()
        assert not thread.is_alive()


def script(**what: Any) -> str:
    """A prompt that tells the scripted engine what to do."""
    return json.dumps(what)


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error of an answer in OpenAI's shape, which has this status."""
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error
