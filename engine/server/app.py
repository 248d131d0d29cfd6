"""The server process: its routes, its start and its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from engine.errors import ConfigError, EngineDiedError
from engine.server.bridge import Bridge
from engine.server.connection import Connection
from engine.server.endpoints import Endpoints
from engine.server.exposure import is_every_address, open_to_anyone, shown_url
from engine.server.guard import Guard
from engine.server.http_errors import ApiError
from engine.server.metrics import Metrics
from engine.server.options import ServerOptions
from engine.server.status import Status
from engine.server.text_model import GgufText, TextModel

log = logging.getLogger("strata.server")
IDLE_CONNECTION_S = 75
MOST_FILES = 1 << 16
SWITCH_S = 0.0005
"""How long a thread that checks a schema may hold up the event loop; Python's own is ten times as
much, at every step of a request."""


def serve(options: ServerOptions) -> int:
    """Serve until SIGTERM or SIGINT, then 0.

    Raises `ConfigError` when the port cannot be bound or no model file is named, what the reader
    and the tokenizer raise about the file, and `EngineDiedError` when the engine does not start.
    """
    gguf = options.gguf
    if gguf is None:
        raise ConfigError("no model file for the tokenizer", "name the GGUF file of the model")
    if options.announce is None:
        options = replace(options, announce=to_stderr)
    listener = bind(options)
    try:
        server = Server(options, GgufText(gguf, options.synthetic), listener)
    except BaseException:
        listener.close()
        raise
    server.run()
    if server.failure is not None:
        raise server.failure
    return 0


def to_stderr(sentence: str) -> None:
    """Print a sentence; it is lost where that is not possible."""
    with contextlib.suppress(OSError, ValueError):
        print(sentence, file=sys.stderr, flush=True)


def allow_many_files() -> None:
    """A connection is an open file, and a shell allows 1,024 of them as a rule."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if most == resource.RLIM_INFINITY else min(most, MOST_FILES)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def bind(options: ServerOptions) -> socket.socket:
    """A bound socket that does not listen yet. Raises `ConfigError`."""
    try:
        infos = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = infos[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise ConfigError(
            f"port {options.port} of {options.host} cannot be used: {error.strerror or error}",
            "choose another one with --port, or stop what uses it",
        ) from None
    return listener


class Server:
    """One server on one bound socket. `run` blocks; `stop` may be called from any thread."""

    def __init__(self, options: ServerOptions, text: TextModel, listener: socket.socket) -> None:
        self.options = options
        self.bridge = Bridge(options)
        self.failure: EngineDiedError | None = None
        self.address: str = listener.getsockname()[0]
        self.port: int = listener.getsockname()[1]
        self.listening = threading.Event()
        self._listener = listener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._http = _Http(self, build_app(options, text, self.bridge))

    def run(self) -> None:
        """Serve until a signal or `stop`. `failure` says why when the engine never started."""
        allow_many_files()
        sys.setswitchinterval(SWITCH_S)
        asyncio.run(self._run())

    def stop(self) -> None:
        """Begin the end: nothing new, a grace for running answers, then the engine's QUIT."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_stop)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        engine = asyncio.create_task(self._keep_engine())
        try:
            await self._http.serve(sockets=[self._listener])
        finally:
            self._begin_stop()
            if self._stopping is not None:
                await self._stopping
            await engine

    async def _keep_engine(self) -> None:
        """Serving goes on through the engine's deaths, but not without a first life."""
        try:
            await self._listens()
            await self.bridge.lives.run()
        except EngineDiedError as error:
            self.failure = error
            self._begin_stop()
        except Exception:  # our own bug: no server without an engine, and the traceback is shown
            self._begin_stop()
            raise

    async def _listens(self) -> None:
        """The port answers before the engine's minutes of loading begin."""
        await self.bridge.board.until(lambda: self._http.started or self._http.should_exit)
        self.listening.set()
        if self.options.announce is not None:
            every = ", every address of this machine" if is_every_address(self.address) else ""
            self.options.announce(f"listening on {shown_url(self.address, self.port)}{every}")
            risk = open_to_anyone(self.address, has_key=bool(self.options.keys))
            if risk is not None:
                self.options.announce(f"warning: {risk}")

    def _begin_stop(self) -> None:
        self._http.should_exit = True
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self.bridge.stop())
        else:
            self.bridge.fail_everything("the server is shutting down")


class _Http(uvicorn.Server):
    """uvicorn, told to leave signals to `Server` and to say when it listens."""

    def __init__(self, owner: Server, app: Starlette) -> None:
        options = owner.options
        grace_s = int(options.shutdown_grace_s) + 5
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(Connection, options.head_timeout_s),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                backlog=options.backlog,
                timeout_keep_alive=IDLE_CONNECTION_S,
                timeout_graceful_shutdown=grace_s,
            )
        )
        self._owner = owner

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._owner.bridge.board.changed()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop the server; a second one does not wait for running answers."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, frame: FrameType | None) -> None:
            self._owner.stop()

        before = {number: signal.signal(number, handle) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def build_app(options: ServerOptions, text: TextModel, bridge: Bridge) -> Starlette:
    """The routes. The bridge's engine is started elsewhere."""
    metrics = Metrics(options, bridge)
    ask = Endpoints(options, text, bridge)
    tell = Status(options, text, bridge, metrics)
    routes: list[BaseRoute] = [
        Route("/", tell.page),
        Route("/health", tell.health),
        Route("/api/health", tell.health),
        Route("/metrics", tell.metrics),
        Route("/v1/status", tell.status),
        Route("/props", tell.props),
        Route("/slots", tell.slots),
        Route("/v1/models", tell.models),
        Route("/models", tell.models),
        Route("/v1/models/{name:path}", tell.model),
        Route("/models/{name:path}", tell.model),
        Route("/v1/chat/completions", ask.chat, methods=["POST"]),
        Route("/v1/completions", ask.completions, methods=["POST"]),
        Route("/v1/responses", ask.responses, methods=["POST"]),
        Route("/v1/messages", ask.messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", ask.count_tokens, methods=["POST"]),
        Route("/tokenize", ask.tokenize, methods=["POST"]),
        Route("/detokenize", ask.detokenize, methods=["POST"]),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, options=options)],
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            RecursionError: _too_deep,
            500: _our_fault,
        },
    )
    app.router.redirect_slashes = False
    return app


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response(request.url.path)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}: {error.detail.lower()}"
    response = ApiError(error.status_code, what).response(request.url.path)
    response.headers.update(error.headers or {})
    return response


async def _too_deep(request: Request, error: Exception) -> Response:
    """What reads a body follows it inwards, and Python ends that somewhere."""
    return ApiError(400, "the body: it is nested too deep").response(request.url.path)


async def _our_fault(request: Request, error: Exception) -> Response:
    log.error("a bug in %s", request.url.path, exc_info=error)
    what = f"a bug in the server: {type(error).__name__}"
    response = ApiError(500, what).response(request.url.path)
    response.headers["Connection"] = "close"  # uvicorn does, and a client should not be surprised
    return response
