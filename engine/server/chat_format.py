"""The JSON of /v1/chat/completions."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from engine.messages import LogProbs
from engine.output_events import (
    ContentText,
    OutputEvent,
    ReasoningText,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from engine.server.format import Frame, Json, OpenAiEvents, token_logprob
from engine.server.generation import Generation
from engine.server.text_model import TextModel
from engine.server.ticket import Progress


class ChatFormat(OpenAiEvents):
    """Implements `Format`. `openai_usage`: the usage comes in a chunk of its own at the end."""

    def __init__(
        self, model: str, text: TextModel, *, stream: bool, logprobs: bool, openai_usage: bool
    ) -> None:
        kind = "chat.completion.chunk" if stream else "chat.completion"
        self._frame = Frame(kind, "chatcmpl", model)
        self._text = text
        self._openai_usage = openai_usage
        self._logprobs: list[Json] | None = [] if logprobs else None
        self._unsent: list[Json] = []
        self._content = ""
        self._reasoning = ""
        self._calls: list[dict[str, Any]] = []
        self._end: dict[str, Any] = {}
        self._reason = ""

    def first(self) -> list[Json]:
        """The role."""
        return [self._chunk({"role": "assistant", "content": ""})]

    def delta(
        self, index: int, events: Sequence[OutputEvent], tokens: Sequence[LogProbs]
    ) -> list[Json]:
        """One chunk an event. Log-probabilities wait for the next chunk with text."""
        self._unsent += [token_logprob(token, self._text) for token in tokens]
        return [self._chunk(delta) for event in events if (delta := self._delta(event))]

    def progress(self, step: Progress, reused: int) -> list[Json]:
        """A chunk with `prompt_progress`, in llama.cpp's words."""
        done = {"total": step.total, "cache": reused, "processed": step.read, "time_ms": step.ms}
        return [self._frame.around([_choice({}, None)], prompt_progress=done)]

    def finish(self, index: int, reason: str, generation: Generation, last: bool) -> list[Json]:
        """The last chunk carries usage and timings; in OpenAI's form it has no choices."""
        self._end = {"usage": generation.usage(), "timings": generation.timings()}
        self._reason = reason
        if not self._openai_usage:
            return [self._chunk({}, reason, **self._end)]
        return [self._chunk({}, reason), self._frame.around([], **self._end)]

    def whole(self) -> Json:
        """The document of an answer that is not streamed."""
        for call in self._calls:
            del call["index"]
        message: dict[str, Any] = {"role": "assistant", "content": self._content}
        if self._reasoning:
            message["reasoning_content"] = self._reasoning
        if self._calls:
            message["tool_calls"] = self._calls
            message["content"] = self._content or None
        if self._logprobs is not None:
            self._logprobs += self._unsent
        choice = {"index": 0, "message": message, "finish_reason": self._reason}
        logprobs = None if self._logprobs is None else {"content": self._logprobs}
        return self._frame.around([{**choice, "logprobs": logprobs}], **self._end)

    def _delta(self, event: OutputEvent) -> dict[str, Any]:
        match event:
            case ContentText(text=text):
                self._content += text
                return {"content": text}
            case ReasoningText(text=text):
                self._reasoning += text
                return {"reasoning_content": text}
            case ToolCallStart():
                function = {"name": event.name, "arguments": ""}
                head = {"index": event.index, "id": f"call_{uuid.uuid4().hex[:24]}"}
                self._calls.append({**head, "type": "function", "function": dict(function)})
                return {"tool_calls": [{**head, "type": "function", "function": function}]}
            case ToolCallArguments():
                self._calls[event.index]["function"]["arguments"] += event.piece
                function = {"arguments": event.piece}
                return {"tool_calls": [{"index": event.index, "function": function}]}
            case ToolCallEnd():
                if not event.complete:
                    self._calls.pop()
                return {}

    def _chunk(self, delta: Json, reason: str | None = None, **more: Any) -> Json:
        choice = _choice(delta, reason)
        if self._logprobs is not None:
            self._logprobs += self._unsent
            choice["logprobs"] = {"content": self._unsent} if self._unsent else None
            self._unsent = []
        if self._openai_usage:
            more = {"usage": None, **more}
        return self._frame.around([choice], **more)


def _choice(delta: Json, reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": reason}
