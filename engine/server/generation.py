"""One answer while it is written: tokens become events of text, and an end with its numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from engine.messages import LogProbs
from engine.output_events import ContentText, OutputEvent, ReasoningText, ToolCallEnd, ToolCallStart
from engine.output_parser import OutputParser
from engine.server.bridge import Bridge
from engine.server.stop_strings import StopStrings
from engine.server.text_model import TextModel
from engine.server.ticket import Ended, NewToken, Progress, Ticket

FinishReason = Literal["stop", "length", "tool_calls"]
LONGEST_REPEAT = 256
"""The same token so often in a row is no answer; it is ended as if by its length."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing happened for as long as was asked."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What a token made certain; `tokens` are the reported ones. Both may be empty."""

    events: Sequence[OutputEvent] = ()
    tokens: Sequence[LogProbs] = ()


@dataclass(frozen=True, slots=True)
class Over:
    """The last step: text that was held back, and why the answer ends."""

    events: Sequence[OutputEvent]
    finish: FinishReason


Step: TypeAlias = Quiet | Progress | Delta | Over


@dataclass(slots=True, eq=False)
class Generation:
    """Reads a ticket's events for one client. `close` must be called, whatever happens.

    Stop strings are looked for in content only, not in reasoning or tool calls. `parser` is `None`
    for plain completions, whose text is all content.
    """

    bridge: Bridge
    ticket: Ticket
    text: TextModel
    stops: Sequence[str] = ()
    parser: OutputParser | None = None
    single_call: bool = False
    """The answer ends with its first call."""
    form_field: str = ""
    """What of the request gave its answer a form."""
    further: bool = False
    """Another answer to a prompt that is counted already."""
    tokens: int = 0
    """Tokens of the answer that count: up to its end or the one that completed a stop string."""
    reasoning_tokens: int = 0
    """Tokens of the answer up to the last one that gave reasoning."""
    _cut: FinishReason | None = None
    _calls: int = 0
    _broken_call: bool = False
    _repeats: int = 0
    _last: int = -1
    _matcher: StopStrings = field(init=False)
    _decoder: Any = field(init=False)

    def __post_init__(self) -> None:
        self._matcher = StopStrings(self.stops)
        self._decoder = self.text.stream()

    async def next(self, timeout_s: float | None) -> Step:
        """The next step. Raises the `ApiError` that the request failed with."""
        event = await self.ticket.next(timeout_s)
        match event:
            case None:
                return Quiet()
            case NewToken():
                return self._token(event)
            case Ended():
                return self._ended(event)
            case Progress():
                return event

    def close(self) -> None:
        """The client needs no more. Safe to call at any time and twice."""
        self.bridge.cancel(self.ticket)

    def _token(self, event: NewToken) -> Step:
        if self._cut is not None:
            return Delta()
        self.tokens += 1
        if event.id in self.text.eos_ids:
            return Delta()
        self._repeats = self._repeats + 1 if event.id == self._last else 1
        self._last = event.id
        events = self._parse(self._decoder.push(event.id))
        if any(isinstance(event, ReasoningText) for event in events):
            self.reasoning_tokens = self.tokens
        if self._matcher.hit is not None or self._has_its_call:
            self._cut = "stop"
        elif self._repeats >= LONGEST_REPEAT:
            self._cut = "length"
        if self._cut is not None:
            self.bridge.cancel(self.ticket)
        return Delta(events, [event.logprobs] if event.logprobs else ())

    def _ended(self, event: Ended) -> Over:
        if event.error is not None and self._cut is None:
            raise event.error.about(self.form_field)
        events: list[OutputEvent] = []
        if self._matcher.hit is None and not self._has_its_call:
            events += self._parse(self._decoder.finish())
            if self.parser is not None:
                events += self._match(self.parser.finish())
            if self._matcher.hit is None:
                events += _content(self._matcher.finish())
        finish = self._cut or ("length" if event.finish == "length" else "stop")
        if self._calls and not self._broken_call and finish == "stop" and not self._matcher.hit:
            finish = "tool_calls"
        return Over(events, finish)

    def _parse(self, text: str) -> list[OutputEvent]:
        if self.parser is None:
            return self._match(_content(text))
        return self._match(self.parser.push(text))

    def _match(self, events: Sequence[OutputEvent]) -> list[OutputEvent]:
        """`events` with stop strings and what follows them cut off."""
        passed: list[OutputEvent] = []
        for event in events:
            if self._matcher.hit is not None or self._has_its_call:
                break
            if isinstance(event, ContentText):
                passed += _content(self._matcher.push(event.text))
                continue
            if isinstance(event, ToolCallEnd):
                self._calls += event.complete
                self._broken_call = not event.complete
            if isinstance(event, ToolCallStart):
                passed += _content(self._matcher.finish())
            passed.append(event)
        return passed

    @property
    def _has_its_call(self) -> bool:
        return self.single_call and self._calls > 0

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the answer."""
        return self._matcher.hit

    def usage(self) -> dict[str, Any]:
        """OpenAI's `usage`."""
        prompt = 0 if self.further else len(self.ticket.prompt)
        cached = 0 if self.further else self.ticket.reused
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.tokens,
            "total_tokens": prompt + self.tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def timings(self) -> Mapping[str, Any]:
        """What llama.cpp calls `timings`; milliseconds and tokens."""
        ticket = self.ticket
        now = ticket.over or time.monotonic()
        first = ticket.first_token or now
        read_ms = ticket.done.prompt_ms if ticket.done else 1000 * (first - (ticket.sent or first))
        new = len(ticket.prompt) - ticket.reused
        decode_ms = ticket.slot_done.ms if ticket.slot_done else 1000 * (now - first)
        offered, accepted = ticket.drafts()
        return {
            "cache_n": ticket.reused,
            "prompt_n": new,
            "prompt_ms": read_ms,
            "prompt_per_token_ms": read_ms / new if new else 0.0,
            "prompt_per_second": 1000 * new / read_ms if read_ms else 0.0,
            "predicted_n": self.tokens,
            "predicted_ms": decode_ms,
            "predicted_per_token_ms": decode_ms / self.tokens if self.tokens else 0.0,
            "predicted_per_second": 1000 * self.tokens / decode_ms if decode_ms else 0.0,
            "draft_n": offered,
            "draft_n_accepted": accepted,
        }


def _content(text: str) -> list[OutputEvent]:
    return [ContentText(text)] if text else []
