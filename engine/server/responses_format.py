"""The JSON and the events of /v1/responses."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from engine.messages import LogProbs
from engine.output_events import (
    ContentText,
    OutputEvent,
    ReasoningText,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from engine.server.format import Json
from engine.server.generation import Generation
from engine.server.http_errors import RESPONSES_PATH, ApiError
from engine.server.responses_body import ResponsesBody
from engine.server.ticket import Progress

_TEXTS = {"message": "output_text", "reasoning": "reasoning_text"}
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


class ResponsesFormat:
    """Implements `Format`, for one answer: a row of items, one open at a time."""

    done = b""

    def __init__(self, body: ResponsesBody, model: str) -> None:
        self._items: list[dict[str, Any]] = []
        self._open = False
        self._number = 0
        self._response: dict[str, Any] = {
            "id": _id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": model,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": body.reasoning.effort if body.reasoning else None},
            "store": False,
            "temperature": body.temperature,
            "text": {"format": _shown_format(body)},
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_p": body.top_p,
            "truncation": "disabled",
            "usage": None,
        }

    @property
    def keep_alive(self) -> bytes:
        """An event: some clients take no notice of comments."""
        return self.encode(self._state("response.in_progress"))

    def first(self) -> list[Json]:
        """The response without its output."""
        return [self._state("response.created", []), self._state("response.in_progress", [])]

    def delta(
        self, index: int, events: Sequence[OutputEvent], tokens: Sequence[LogProbs]
    ) -> list[Json]:
        """Items begin, grow and end."""
        return [chunk for event in events for chunk in self._event(event)]

    def progress(self, step: Progress, reused: int) -> list[Json]:
        """Nothing: there is no place for it."""
        return []

    def finish(self, index: int, reason: str, generation: Generation, last: bool) -> list[Json]:
        """Why it ends, and what it cost."""
        cut = reason == "length"
        closed = self._close("incomplete" if cut else "completed")
        usage = generation.usage()
        self._response |= {
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": generation.reasoning_tokens},
                "total_tokens": usage["total_tokens"],
            },
        }
        return [*closed, self._state(f"response.{self._response['status']}")]

    def whole(self) -> Json:
        """The document of an answer that is not streamed."""
        return {**self._response, "output": self._items}

    def encode(self, chunk: Json) -> bytes:
        """An event with its name and its number."""
        numbered = {**chunk, "sequence_number": self._number}
        self._number += 1
        return b"event: %s\ndata: %s\n\n" % (chunk["type"].encode(), msgspec.json.encode(numbered))

    def failed(self, error: ApiError) -> Json:
        """An error in a stream: the response as far as it came, and why it goes no further."""
        error = error.named_for(RESPONSES_PATH)
        code = "invalid_prompt" if error.status == 400 else "server_error"
        self._response["status"] = "failed"
        self._response["error"] = {"code": code, "message": error.message, "param": error.param}
        return self._state("response.failed")

    def _state(self, kind: str, output: Sequence[Json] | None = None) -> Json:
        shown = self._items if output is None else output
        return {"type": kind, "response": {**self._response, "output": [*shown]}}

    def _event(self, event: OutputEvent) -> list[Json]:
        match event:
            case ContentText(text=text):
                return self._grow("message", {"role": "assistant"}, text)
            case ReasoningText(text=text):
                return self._grow("reasoning", {"summary": []}, text)
            case ToolCallStart():
                call = {"call_id": _id("call"), "name": event.name, "arguments": ""}
                return self._begin("function_call", call)
            case ToolCallArguments(piece=piece):
                self._items[-1]["arguments"] += piece
                return [self._at("response.function_call_arguments.delta", delta=piece)]
            case ToolCallEnd():
                chunks = self._close("completed" if event.complete else "incomplete")
                if not event.complete:
                    self._items.pop()
                return chunks

    def _grow(self, kind: str, more: dict[str, Any], text: str) -> list[Json]:
        chunks: list[Json] = []
        if not self._open or self._items[-1]["type"] != kind:
            part: dict[str, Any] = {"type": _TEXTS[kind], "text": ""}
            if kind == "message":
                part |= {"annotations": [], "logprobs": []}
            chunks = self._begin(kind, {**more, "content": []})
            self._items[-1]["content"].append(part)
            added = self._at("response.content_part.added", content_index=0, part=dict(part))
            chunks.append(added)
        self._items[-1]["content"][0]["text"] += text
        logprobs: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        name = f"response.{_TEXTS[kind]}.delta"
        return [*chunks, self._at(name, content_index=0, delta=text, **logprobs)]

    def _begin(self, kind: str, more: dict[str, Any]) -> list[Json]:
        closed = self._close("completed")
        item = {"id": _id(_PREFIXES[kind]), "type": kind, "status": "in_progress", **more}
        self._items.append(item)
        self._open = True
        shown = {**item, "content": []} if "content" in item else dict(item)
        return [*closed, self._at_item("response.output_item.added", shown)]

    def _close(self, status: str) -> list[Json]:
        """The events that end the open item."""
        if not self._open:
            return []
        self._open = False
        item = self._items[-1]
        item["status"] = status
        chunks = []
        if item["type"] == "function_call":
            whole = {"arguments": item["arguments"], "name": item["name"]}
            chunks.append(self._at("response.function_call_arguments.done", **whole))
        else:
            part = item["content"][0]
            told: dict[str, Any] = {"text": part["text"]}
            if item["type"] == "message":
                told["logprobs"] = []
            name = f"response.{_TEXTS[item['type']]}.done"
            chunks.append(self._at(name, content_index=0, **told))
            chunks.append(self._at("response.content_part.done", content_index=0, part=part))
        return [*chunks, self._at_item("response.output_item.done", item)]

    def _at(self, kind: str, **more: Any) -> Json:
        """An event about the last item."""
        where = {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}
        return {"type": kind, **where, **more}

    def _at_item(self, kind: str, item: Json) -> Json:
        return {"type": kind, "output_index": len(self._items) - 1, "item": item}


def _shown_format(body: ResponsesBody) -> Json:
    if body.text is None or body.text.format is None:
        return {"type": "text"}
    return {k: v for k, v in msgspec.to_builtins(body.text.format).items() if v is not None}


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:24]}"
