"""The engine's desk: commands of the protocol in, lines about their requests out.

`engine/protocol.py` says which lines flow. The desk times requests and knows which of them came
with a seat (`BGEN`) and which without (`GEN`).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from engine import messages, request
from engine.constraints import Form
from engine.engine import Engine
from engine.errors import RequestError
from engine.grammars import FIELD
from engine.sampling import Sampling

Send = Callable[[messages.Event], None]
_SAMPLING_KEYS = tuple(field.name for field in fields(Sampling))


@dataclass(slots=True)
class _Call:
    """A running request as its caller sees it. Times are seconds of the desk's clock."""

    command: messages.Gen | messages.BatchGen
    slot: int
    reused: int
    started: float
    read: int = 0
    tokens: int = 0
    first_token: float = 0.0
    admitting: bool = False
    """The first token is told, the end of the admission is not."""

    @property
    def rid(self) -> str:
        return self.command.rid

    @property
    def seated(self) -> bool:
        """True for a BGEN."""
        return isinstance(self.command, messages.BatchGen)


class Desk:
    """Serves commands with `engine`; every answer goes to `send`.

    `clock` counts seconds; `trace` gets a sentence for each prompt that is read.
    """

    def __init__(
        self,
        engine: Engine,
        send: Send,
        clock: Callable[[], float],
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self._engine = engine
        self._send = send
        self._clock = clock
        self._trace = trace
        self._calls: dict[str, _Call] = {}
        self._numbers = 0

    def handle(self, command: messages.Command) -> None:
        """Do what a command says, QUIT excepted. What it refuses is answered with ERR."""
        match command:
            case messages.Gen() | messages.BatchGen():
                self._begin(command)
            case messages.Stop():
                self._settle()
                for name, call in list(self._calls.items()):
                    if call.tokens == 0 or not call.seated:
                        self._cancel(name)
            case messages.BatchStop():
                self._each(command.slot, command.rid, self._cancel)
            case messages.BatchYield():
                self._each(command.slot, command.rid, self._give_way)

    def tell(self, events: Sequence[request.Event]) -> None:
        """Send the lines about the events of one window."""
        for event in events:
            self._tell(event)
        for call in self._calls.values():
            if call.admitting:
                self._end_admission(call, "length", goes_on=True)

    def _begin(self, command: messages.Gen | messages.BatchGen) -> None:
        self._numbers += 1
        name = str(self._numbers)
        try:
            started = self._engine.submit(_request(command, name))
        except RequestError as error:
            text = f"{error.message}: {error.hint}" if error.hint else error.message
            self._send(messages.Failed(text, command.rid))
            return
        self._calls[name] = _Call(command, started.slot, started.reused, self._clock())
        self._send(messages.Resume(started.reused, command.rid))

    def _settle(self) -> None:
        """A request ends between two windows, when all that it gave is told."""
        self.tell(self._engine.settle())

    def _each(self, slot: int, rid: str, act: Callable[[str], None]) -> None:
        """`act` on the request in `slot`, if there is one and it has that `rid` (empty: any)."""
        self._settle()
        for name, call in list(self._calls.items()):
            if call.slot == slot and rid in ("", call.rid):
                act(name)

    def _cancel(self, name: str) -> None:
        end = self._engine.cancel(name)
        if end:
            self._tell(end)

    def _give_way(self, name: str) -> None:
        call = self._calls[name]
        end = self._engine.cancel(name) if call.tokens == 0 else None
        if end:
            self._send(messages.Yielded(call.slot, end.held, call.rid))
            self._tell(end)

    def _tell(self, event: request.Event) -> None:
        call = self._calls[event.id]
        match event:
            case request.PromptRead():
                self._tell_read(call, event)
            case request.Produced():
                self._tell_token(call, event)
            case request.Finished():
                del self._calls[event.id]
                self._tell_end(call, event)

    def _tell_read(self, call: _Call, event: request.PromptRead) -> None:
        seconds = self._clock() - call.started
        rate = (event.read - call.reused) / max(seconds, 1e-6)
        call.read = event.read
        ms = 1000 * seconds
        self._send(messages.PromptRead(event.read, event.total, ms, rate, call.rid))
        if event.read == event.total:
            self._send(messages.Reused(call.reused, call.rid))
            if self._trace:
                held = f"slot {call.slot} held {call.reused} of {event.total} prompt tokens"
                self._trace(f"{held}, the others took {ms:.1f} ms: {event.phases.sentence()}")

    def _tell_token(self, call: _Call, event: request.Produced) -> None:
        choice = event.choice
        if choice.logprob is not None:
            line = messages.LogProbs(choice.token, choice.logprob, choice.top, call.rid)
            self._send(line)
        if choice.row_hash is not None:
            self._send(messages.RowHash(choice.row_hash, call.rid))
        call.tokens += 1
        if call.tokens == 1:
            call.first_token = self._clock()
            call.admitting = call.seated
        if call.seated and call.tokens > 1:
            self._send(messages.SlotToken(call.slot, choice.token, call.rid))
        else:
            self._send(messages.Token(choice.token, call.rid))

    def _tell_end(self, call: _Call, end: request.Finished) -> None:
        if end.finish == "error":
            self._send(messages.Failed(end.error, call.rid))
        elif not call.seated:
            self._send(self._done(call, end.finish, end))
        elif call.tokens == 0 or call.admitting:
            self._end_admission(call, end.finish, goes_on=False)
        else:
            ms = 1000 * (self._clock() - call.first_token)
            counts = (end.accepted, end.offered)
            line = messages.SlotDone(call.slot, end.generated, end.finish, ms, *counts, call.rid)
            self._send(line)

    def _end_admission(self, call: _Call, finish: messages.Finish, *, goes_on: bool) -> None:
        call.admitting = False
        self._send(self._done(call, finish, None))
        self._send(messages.Admitted(call.slot, goes_on, call.rid))

    def _done(
        self, call: _Call, finish: messages.Finish, end: request.Finished | None
    ) -> messages.Done:
        now = self._clock()
        first = call.first_token or now
        return messages.Done(
            generated=call.tokens,
            prompt_tokens=len(call.command.ids),
            prompt_ms=1000 * (first - call.started),
            decode_ms=1000 * (now - first),
            finish=finish,
            drafts_accepted=end.accepted if end else 0,
            drafts_offered=end.offered if end else 0,
            reused=call.reused,
            prompt_read=call.read,
            rid=call.rid,
        )


def _request(command: messages.Gen | messages.BatchGen, name: str) -> request.Request:
    keys = command.keys
    given = {key: getattr(keys, key) for key in _SAMPLING_KEYS if getattr(keys, key) is not None}
    return request.Request(
        id=name,
        tokens=command.ids,
        max_new=command.max_new,
        sampling=Sampling(**given),
        slot=command.slot if isinstance(command, messages.BatchGen) else None,
        spec_min_p=keys.spec_min_p,
        logprobs=keys.logprobs,
        hashes=bool(keys.hashes),
        form=_form(keys),
    )


def _form(keys: messages.Keys) -> Form | None:
    grammar = None
    if keys.grammar is not None:
        try:
            grammar = base64.urlsafe_b64decode(keys.grammar).decode()
        except ValueError as error:
            raise RequestError(f"{FIELD}: {error}") from None
    if keys.think_most is not None and keys.think_end is None:
        raise RequestError("think_most needs think_end")
    form = Form(grammar, keys.think_end, keys.think_most)
    return form if grammar is not None or keys.think_most is not None else None
