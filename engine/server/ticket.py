"""One request on its way through the engine, and the outbox its client reads from."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from engine.messages import Done, Keys, LogProbs, SlotDone
from engine.server.http_errors import ApiError

Phase = Literal["queued", "reading", "decoding", "over"]
Finish = Literal["stop", "length", "cancel"]


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token of the answer, with its log-probabilities where they were asked for."""

    id: int
    logprobs: LogProbs | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """`read` of `total` prompt tokens are in."""

    read: int
    total: int
    ms: float


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing follows. With an `error` the answer is not whole."""

    finish: Finish
    error: ApiError | None = None


TicketEvent: TypeAlias = NewToken | Progress | Ended


@dataclass(slots=True, eq=False)
class Ticket:
    """Owned by the bridge, which fills it; the client's side only calls `next`.

    The engine's reader never waits for a client: events lie in `_events` until they are taken, and
    a client that lets more than `outbox_limit` of them pile up loses its request.
    """

    rid: str
    prompt: tuple[int, ...]
    max_new: int
    keys: Keys
    outbox_limit: int
    created: float = field(default_factory=time.monotonic)
    phase: Phase = "queued"
    slot: int | None = None
    sent: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    over: float | None = None
    generated: list[int] = field(default_factory=list)
    taken: bool = False
    """The engine answered it with more than a refusal."""
    read: int = 0
    read_ms: float = 0.0
    reused: int = 0
    gave_way: int = 0
    """How often another one got its slot while its prompt was read."""
    asked_to_yield: bool = False
    yielded: bool = False
    """The engine obeyed: it has no slot, and is sent again."""
    cancelled: float | None = None
    done: Done | None = None
    slot_done: SlotDone | None = None
    logprobs: LogProbs | None = None
    ended: Ended | None = None
    gaps: list[float] = field(default_factory=list)
    _events: deque[TicketEvent] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def next(self, timeout_s: float | None = None) -> TicketEvent | None:
        """The next event; `None` when `timeout_s` passes without one."""
        while not self._events:
            self._wake.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                return None
        return self._events.popleft()

    @property
    def overflowed(self) -> bool:
        """The client does not read: more lies here than the limit."""
        return len(self._events) > self.outbox_limit

    def seat(self, slot: int) -> None:
        """It goes to the engine now."""
        self.slot = slot
        self.phase = "reading"
        self.sent = time.monotonic()

    def resume(self, reused: int) -> None:
        """The engine holds `reused` tokens of the prompt already."""
        self.taken = True
        if not self.gave_way:
            self.reused = reused
        self.read = max(self.read, reused)

    def queue_again(self) -> None:
        """It gave its slot away; what was read is parked."""
        self.gave_way += 1
        self.asked_to_yield = self.yielded = False
        self.phase, self.slot, self.done = "queued", None, None

    def token(self, token: int) -> None:
        """The engine printed `token`."""
        now = time.monotonic()
        if self.first_token is None:
            self.first_token = now
        else:
            self.gaps.append(now - (self.last_token or now))
        self.last_token = now
        self.generated.append(token)
        self._put(NewToken(token, self.logprobs))
        self.logprobs = None

    def progress(self, read: int, total: int, ms: float) -> None:
        """The engine has read so much of the prompt."""
        self.read, self.read_ms = read, ms
        self._put(Progress(read, total, ms))

    def end(self, finish: Finish, error: ApiError | None = None) -> None:
        """The request is over; the first end counts."""
        if self.ended is None:
            self.over = time.monotonic()
            self.phase = "over"
            self.ended = Ended(finish, error)
            self._put(self.ended)

    def held(self) -> list[int]:
        """The tokens whose state the slot has now: all but the last one of the answer."""
        if not self.generated:
            return list(self.prompt[: self.read])
        return [*self.prompt, *self.generated[:-1]]

    def drafts(self) -> tuple[int, int]:
        """Draft tokens that were offered and accepted."""
        if self.slot_done is not None:
            return self.slot_done.offered, self.slot_done.accepted
        return (self.done.drafts_offered, self.done.drafts_accepted) if self.done else (0, 0)

    def _put(self, event: TicketEvent) -> None:
        if self.cancelled is None or isinstance(event, Ended):
            self._events.append(event)
            self._wake.set()
