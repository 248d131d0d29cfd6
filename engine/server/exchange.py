"""Sends an answer, streamed or whole, to a client that may leave at any time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from engine.server.format import Format, Json
from engine.server.generation import Delta, Generation, Over, Quiet, Step
from engine.server.http_errors import ApiError
from engine.server.ticket import Progress

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
HEADERS_S = 1.0


async def whole_answer(
    request: Request, generations: Sequence[Generation], format: Format
) -> Response:
    """Wait for the whole answer. A client that leaves stops its slots."""

    async def collect() -> Response:
        async with aclosing(_steps(generations, lambda: None)) as steps:
            async for index, step, last in steps:
                _apply(step, index, generations[index], format, last)
        return JSONResponse(format.whole())

    try:
        answer = await until_left(request.receive, collect())
    finally:
        _close(generations)
    return answer if answer is not None else Response(status_code=499)


class EventStream(Response):
    """Server-sent events of an answer.

    Headers are sent with the first event, so that a request which the engine refuses at once still
    gets a status of its own; after `HEADERS_S` they are sent anyway. From then on an error is an
    event, the last one. No more than `keepalive_s` passes without a byte.
    """

    def __init__(
        self,
        generations: Sequence[Generation],
        format: Format,
        keepalive_s: float,
        progress: bool = False,
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._generations = generations
        self._format = format
        self._keepalive_s = keepalive_s
        self._headers_s = min(keepalive_s, HEADERS_S)
        self._progress = progress
        self._sent_at = time.monotonic()
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or stop the slots when the client leaves."""
        try:
            await until_left(receive, self._run(send))
        except OSError:
            pass  # the client left while something was sent to it
        finally:
            _close(self._generations)

    async def _run(self, send: Send) -> None:
        try:
            async with aclosing(_steps(self._generations, self._quiet_s)) as steps:
                async for index, step, last in steps:
                    await self._one(index, step, last, send)
        except ApiError as error:
            if not self._started:
                raise
            failure = error
            await self._write(send, lambda: self._format.encode(self._format.failed(failure)))
        else:
            await self._write(send, lambda: self._format.done)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _quiet_s(self) -> float:
        """How long nothing more need be sent."""
        quiet_s = self._keepalive_s if self._started else self._headers_s
        return max(0.0, self._sent_at + quiet_s - time.monotonic())

    async def _one(self, index: int, step: Step, last: bool, send: Send) -> None:
        generation = self._generations[index]
        chunks = _apply(step, index, generation, self._format, last)
        if isinstance(step, Progress) and self._progress:
            chunks = self._format.progress(step, generation.ticket.reused)
        late = time.monotonic() - self._sent_at >= self._keepalive_s
        if chunks:
            await self._write(send, lambda: b"".join(map(self._format.encode, chunks)))
        elif isinstance(step, Quiet | Progress) or late:
            await self._write(send, lambda: self._format.keep_alive)
        # Neither `next` nor `send` gives way while there is much to send and room for it.
        await asyncio.sleep(0)

    async def _write(self, send: Send, made: Callable[[], bytes]) -> None:
        """`made` after what comes first: a format may number its events."""
        data = b""
        if not self._started:
            self._started = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            data = b"".join(map(self._format.encode, self._format.first()))
        await send({"type": "http.response.body", "body": data + made(), "more_body": True})
        self._sent_at = time.monotonic()


async def until_left(receive: Receive, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`; `None`, with `work` cancelled, when the client leaves before it."""
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(_left(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return None
    finally:
        for one in (task, watcher):
            one.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _steps(
    generations: Sequence[Generation], quiet_s: Callable[[], float | None]
) -> AsyncGenerator[tuple[int, Step, bool]]:
    """The steps of all choices as they come, with the number of the choice, and whether it is the
    end of the last one. `Quiet` when none comes for `quiet_s()`."""
    left = set(range(len(generations)))
    waiting: dict[asyncio.Task[Step], int] = {}
    try:
        while left:
            if len(left) == 1 and not waiting:
                (index,) = left
                found = [(index, await generations[index].next(quiet_s()))]
            else:
                for index in left - set(waiting.values()):
                    waiting[asyncio.create_task(generations[index].next(None))] = index
                done, _ = await asyncio.wait(
                    waiting, timeout=quiet_s(), return_when=asyncio.FIRST_COMPLETED
                )
                found = sorted(((waiting.pop(task), task.result()) for task in done), key=_first)
            for index, step in found or [(min(left), Quiet())]:
                left -= {index} if isinstance(step, Over) else set()
                yield index, step, not left
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _first(found: tuple[int, Step]) -> int:
    return found[0]


def _apply(
    step: Step, index: int, generation: Generation, format: Format, last: bool
) -> list[Json]:
    """The chunks of a step."""
    match step:
        case Delta():
            return format.delta(index, step.events, step.tokens)
        case Over():
            chunks = format.delta(index, step.events, ())
            return [*chunks, *format.finish(index, step.finish, generation, last)]
    return []


def _close(generations: Sequence[Generation]) -> None:
    for generation in generations:
        generation.close()
