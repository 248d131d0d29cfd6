"""Between HTTP and the engine: a queue of requests, and the engine's slots."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from engine.grammars import FIELD
from engine.messages import (
    Admitted,
    BatchGen,
    BatchStop,
    BatchYield,
    Done,
    Event,
    Failed,
    Info,
    Keys,
    LogProbs,
    PromptRead,
    Ready,
    Resume,
    Reused,
    SlotDone,
    SlotToken,
    Token,
    Yielded,
)
from engine.server.board import Board
from engine.server.http_errors import ApiError
from engine.server.lives import Lives
from engine.server.options import ServerOptions
from engine.server.silence import Silence
from engine.server.slots import SlotTable
from engine.server.ticket import Finish, Ticket
from engine.server.waiting import gives_way, next_in_line

log = logging.getLogger("strata.server")


class Bridge:
    """All requests of this server. Everything runs on one event loop; nothing here waits for HTTP.

    * `submit` queues a request. `_dispatch` seats one while a slot is free: first come, first
      served, or short ones first as far as `next_in_line` lets them. Where the engine parks what
      was read, a long prompt that is being read gives its slot to a short one (`gives_way`).
    * A request that was sent lives in `running` until the engine says that it is over, also when
      its client has gone: only then is its slot free again.
    * When the engine dies, everything in `running` fails with the reason. What still waits was
      never sent, so it keeps its place and is served by the next life.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.info: Mapping[str, int | str] = {}
        self.max_context = 0
        self.slots = SlotTable(0)
        self.queue: deque[Ticket] = deque()
        self.running: dict[str, Ticket] = {}
        self.on_over: Callable[[Ticket], None] = lambda ticket: None
        self.board = Board()
        self._silence = Silence(options.engine_silence_s, self.running.values())
        self.lives = Lives(options, self._silence, self.board, self._handle, self._died)
        self._rids = count(1)
        self.preempted = 0
        """Reads that gave their slot to a shorter prompt."""

    # The client's side

    def check_open(self) -> None:
        """Raise the `ApiError` 503 that a request would get whatever it asks."""
        self.lives.ask()
        if self.lives.state == "loading":
            raise ApiError(503, "the model is loading", code="loading", retry_after_s=2)
        if self.lives.stopped:
            raise ApiError(503, "the server is shutting down", code="stopping", retry_after_s=5)

    def submit(self, prompt: Sequence[int], max_new: int, keys: Keys) -> Ticket:
        """Queue a request. Raises `ApiError` 503 (no engine) or 429 (queue full)."""
        self.check_open()
        if len(self.queue) >= self.options.queue_limit:
            waiting, limit = len(self.queue), self.options.queue_limit
            why = f"{waiting} requests wait already, the limit is {limit}"
            raise ApiError(429, why, code="queue_full", retry_after_s=5)
        rid = f"r{next(self._rids)}"
        ticket = Ticket(rid, tuple(prompt), max_new, keys, self.options.outbox_limit)
        self.queue.append(ticket)
        self._dispatch()
        self.board.changed()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Its client needs no more of `ticket`: leave the queue, or stop the slot. Never waits."""
        if ticket.phase == "over" or ticket.cancelled is not None:
            return
        ticket.cancelled = time.monotonic()
        if ticket.phase == "queued":
            self.queue.remove(ticket)
            self._over(ticket, "cancel")
        elif self.lives.process is not None and ticket.slot is not None:
            self.lives.process.send(BatchStop(ticket.slot, ticket.rid))

    async def stop(self) -> None:
        """Refuse what is new, give running answers `shutdown_grace_s`, end the engine."""
        self.lives.refuse()
        grace_s = self.options.shutdown_grace_s
        await self.board.until(lambda: not self.running and not self.queue, grace_s)
        self.fail_everything("the server is shutting down")
        await self.lives.close()

    def fail_everything(self, why: str) -> None:
        """End what runs and what waits with a 503."""
        # The queue first: a seat that is given up must not go to one who waits.
        self._fail_queue(why, "stopping")
        self._fail_running(why, "stopping")

    # The engine's side

    def _dispatch(self) -> None:
        """Seat waiting requests while there are free slots."""
        process = self.lives.process
        while self.queue and process is not None and len(self.slots) > 0:
            wait_s, short = self.options.admit_max_wait_s, self.options.admit_short_tokens
            ticket = self.queue[next_in_line(self.queue, short, wait_s, time.monotonic())]
            slot = self.slots.take(ticket.prompt, ticket.rid)
            if slot is None:
                self._ask_to_yield(ticket.prompt)
                break
            self.queue.remove(ticket)
            ticket.seat(slot.number)
            if not self.running:
                self._silence.heard()
            self.running[ticket.rid] = ticket
            order = BatchGen(slot.number, ticket.max_new, ticket.prompt, ticket.keys, ticket.rid)
            process.send(order)
        self._silence.working(bool(self.running))

    def _ask_to_yield(self, prompt: Sequence[int]) -> None:
        """Have a read give its slot to `prompt`, if the rules say so."""
        readers = [ticket for ticket in self.running.values() if ticket.phase == "reading"]
        under_way = any(ticket.asked_to_yield for ticket in readers)
        if under_way or not self._fact("conversation_cache_mib"):
            return
        reader = gives_way(readers, prompt, self._fact("prefill"))
        if reader is not None and reader.slot is not None and self.lives.process is not None:
            reader.asked_to_yield = True
            self.lives.process.send(BatchYield(reader.slot, reader.rid))

    def _fact(self, name: str) -> int:
        """A number that the engine told; 0: none."""
        value = self.info.get(name)
        return value if isinstance(value, int) else 0

    def _gave_way(self, ticket: Ticket) -> None:
        """Its slot goes to whoever is next, and it is next behind that one."""
        wait_s, short = self.options.admit_max_wait_s, self.options.admit_short_tokens
        if ticket.slot is not None:
            self.slots.release(ticket.slot, ticket.prompt[: ticket.read])
        del self.running[ticket.rid]
        ticket.queue_again()
        self.preempted += 1
        line = [ticket]
        if self.queue:  # else whoever asked has left
            line.append(self.queue[next_in_line(self.queue, short, wait_s, time.monotonic())])
            self.queue.remove(line[-1])
        self.queue.extendleft(line)
        self._dispatch()

    def _handle(self, event: Event) -> None:
        match event:
            case Info():
                self.info = {**self.info, **event.values}
            case Ready():
                self.max_context = event.max_context
                self.slots = SlotTable(max(1, self._fact("batch_slots")))
                self._dispatch()
                if self.options.announce is not None:
                    seats = len(self.slots)
                    self.options.announce(f"ready: {seats} slots, {self.max_context} tokens each")
            case _:
                ticket = self.running.get(getattr(event, "rid", ""))
                if ticket is not None:
                    self._handle_for(ticket, event)
                    self.board.changed()
                elif isinstance(event, Failed):
                    log.error("the engine: %s", event.message)

    def _handle_for(self, ticket: Ticket, event: Event) -> None:
        """One line about one running request."""
        match event:
            case Resume(reused=reused) | Reused(reused=reused):
                ticket.resume(reused)
            case PromptRead():
                self._silence.chunk((event.ms - ticket.read_ms) / 1000)
                ticket.progress(event.read_to, event.total, event.ms)
            case LogProbs():
                ticket.logprobs = event
            case Token(id=token) | SlotToken(id=token):
                ticket.token(token)
                if ticket.overflowed:
                    self.cancel(ticket)
                    ticket.end("cancel", ApiError(503, "the client reads too slowly"))
            case Yielded():
                ticket.yielded = True
            case Done():
                ticket.done = event
            case Admitted():
                self._admitted(ticket, event.goes_on)
            case SlotDone():
                ticket.slot_done = event
                self._over(ticket, event.finish)
            case Failed():
                self._over(ticket, "cancel", _fault(event.message, refused=not ticket.taken))

    def _admitted(self, ticket: Ticket, goes_on: bool) -> None:
        if goes_on:
            ticket.phase = "decoding"
            return
        if ticket.yielded and ticket.cancelled is None:
            self._gave_way(ticket)
            return
        finish = ticket.done.finish if ticket.done else "cancel"
        whole = finish == "stop" or len(ticket.generated) >= ticket.max_new
        if whole or ticket.cancelled is not None:
            self._over(ticket, finish)
        else:
            why = f"the engine ended the answer after its first token ({finish})"
            self._over(ticket, finish, ApiError(500, why))

    def _over(self, ticket: Ticket, finish: Finish, error: ApiError | None = None) -> None:
        """The engine is done with `ticket` (or never saw it): free its seat, tell its client."""
        sent = self.running.pop(ticket.rid, None) is not None
        if sent and ticket.slot is not None and ticket.slot < len(self.slots):
            slot = self.slots.slots[ticket.slot]
            unknown = error is not None and ticket.taken
            kept = slot.held if error is not None else ticket.held()
            self.slots.release(slot.number, [] if unknown else kept)
        if sent and error is None:
            self.lives.works()
        ticket.end(finish, error)
        self.on_over(ticket)
        self._dispatch()
        self.board.changed()

    def _died(self, reason: str, gives_up: bool) -> None:
        self.slots = SlotTable(0)
        self._fail_running(f"the engine died: {reason}", "engine_died")
        if gives_up:
            self._fail_queue(f"the engine died again and again: {reason}", "no_engine")

    def _fail_running(self, why: str, code: str) -> None:
        for ticket in list(self.running.values()):
            self._over(ticket, "cancel", ApiError(503, why, code=code, retry_after_s=1))

    def _fail_queue(self, why: str, code: str) -> None:
        waiting = list(self.queue)
        self.queue.clear()
        for ticket in waiting:
            self._over(ticket, "cancel", ApiError(503, why, code=code, retry_after_s=5))


def _fault(message: str, *, refused: bool) -> ApiError:
    """What the engine says against one request: refused before anything was read, or later."""
    if message.startswith(FIELD):
        return ApiError(400, message, param=FIELD, code="invalid_value")
    return ApiError(400 if refused else 500, message)
