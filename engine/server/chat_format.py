"""The JSON of /v1/chat/completions."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
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
from engine.server.format import Frame, Json, OpenAiEvents, add_usage, token_logprob
from engine.server.generation import Generation
from engine.server.text_model import TextModel
from engine.server.ticket import Progress


@dataclass(slots=True)
class _Choice:
    """One answer so far; `unsent` log-probabilities wait for the next chunk."""

    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)
    unsent: list[Json] = field(default_factory=list)
    reason: str = ""


class ChatFormat(OpenAiEvents):
    """Implements `Format`. `openai_usage`: the usage comes in a chunk of its own at the end."""

    def __init__(
        self,
        model: str,
        text: TextModel,
        *,
        choices: int,
        stream: bool,
        logprobs: bool,
        openai_usage: bool,
    ) -> None:
        kind = "chat.completion.chunk" if stream else "chat.completion"
        self._frame = Frame(kind, "chatcmpl", model)
        self._text = text
        self._openai_usage = openai_usage
        self._with_logprobs = logprobs
        self._choices = [_Choice() for _ in range(choices)]
        self._usage: dict[str, Any] | None = None
        self._end: dict[str, Any] = {}

    def first(self) -> list[Json]:
        """The role of each choice."""
        role = {"role": "assistant", "content": ""}
        return [self._chunk(index, role) for index in range(len(self._choices))]

    def delta(
        self, index: int, events: Sequence[OutputEvent], tokens: Sequence[LogProbs]
    ) -> list[Json]:
        """One chunk an event. Log-probabilities wait for the next chunk with text."""
        choice = self._choices[index]
        choice.unsent += [token_logprob(token, self._text) for token in tokens]
        deltas = (_delta(choice, event) for event in events)
        return [self._chunk(index, delta) for delta in deltas if delta]

    def progress(self, step: Progress, reused: int) -> list[Json]:
        """A chunk with `prompt_progress`, in llama.cpp's words."""
        done = {"total": step.total, "cache": reused, "processed": step.read, "time_ms": step.ms}
        return [self._frame.around([_choice(0, {}, None)], prompt_progress=done)]

    def finish(self, index: int, reason: str, generation: Generation, last: bool) -> list[Json]:
        """The last chunk carries usage and timings; in OpenAI's form it has no choices."""
        self._usage = add_usage(self._usage, generation.usage())
        self._end = {"usage": self._usage, "timings": generation.timings()}
        self._choices[index].reason = reason
        if not last:
            return [self._chunk(index, {}, reason)]
        if not self._openai_usage:
            return [self._chunk(index, {}, reason, **self._end)]
        return [self._chunk(index, {}, reason), self._frame.around([], **self._end)]

    def whole(self) -> Json:
        """The document of an answer that is not streamed."""
        choices = [self._whole(index, choice) for index, choice in enumerate(self._choices)]
        return self._frame.around(choices, **self._end)

    def _whole(self, index: int, choice: _Choice) -> Json:
        for call in choice.calls:
            del call["index"]
        message: dict[str, Any] = {"role": "assistant", "content": choice.content}
        if choice.reasoning:
            message["reasoning_content"] = choice.reasoning
        if choice.calls:
            message["tool_calls"] = choice.calls
            message["content"] = choice.content or None
        content = [*choice.logprobs, *choice.unsent]
        logprobs = {"content": content} if self._with_logprobs else None
        return {
            "index": index,
            "message": message,
            "finish_reason": choice.reason,
            "logprobs": logprobs,
        }

    def _chunk(self, index: int, delta: Json, reason: str | None = None, **more: Any) -> Json:
        shown = _choice(index, delta, reason)
        if self._with_logprobs:
            choice = self._choices[index]
            choice.logprobs += choice.unsent
            shown["logprobs"] = {"content": choice.unsent} if choice.unsent else None
            choice.unsent = []
        if self._openai_usage:
            more = {"usage": None, **more}
        return self._frame.around([shown], **more)


def _delta(choice: _Choice, event: OutputEvent) -> dict[str, Any]:
    match event:
        case ContentText(text=text):
            choice.content += text
            return {"content": text}
        case ReasoningText(text=text):
            choice.reasoning += text
            return {"reasoning_content": text}
        case ToolCallStart():
            function = {"name": event.name, "arguments": ""}
            head = {"index": event.index, "id": f"call_{uuid.uuid4().hex[:24]}"}
            choice.calls.append({**head, "type": "function", "function": dict(function)})
            return {"tool_calls": [{**head, "type": "function", "function": function}]}
        case ToolCallArguments():
            choice.calls[event.index]["function"]["arguments"] += event.piece
            function = {"arguments": event.piece}
            return {"tool_calls": [{"index": event.index, "function": function}]}
        case ToolCallEnd():
            if not event.complete:
                choice.calls.pop()
            return {}


def _choice(index: int, delta: Json, reason: str | None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": reason}
