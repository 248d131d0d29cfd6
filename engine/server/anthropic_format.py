"""The JSON and the events of /v1/messages."""

from __future__ import annotations

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
from engine.server.http_errors import ApiError
from engine.server.ticket import Progress

_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "stop": "end_turn"}


class AnthropicFormat:
    """Implements `Format`, for one choice: the message is a row of blocks, one open at a time."""

    keep_alive = b'event: ping\ndata: {"type":"ping"}\n\n'
    done = b""

    def __init__(self, model: str, prompt_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens
        self._blocks: list[dict[str, Any]] = []
        self._open = False
        self._arguments = ""
        self._message: dict[str, Any] = {
            "id": f"msg_{uuid.uuid4().hex[:24]}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "stop_reason": None,
            "stop_sequence": None,
        }

    def first(self) -> list[Json]:
        """The message without its content; all of the prompt counts as read until its end."""
        usage = {"input_tokens": self._prompt_tokens, "output_tokens": 0}
        return [
            {"type": "message_start", "message": {**self._message, "content": [], "usage": usage}}
        ]

    def delta(
        self, index: int, events: Sequence[OutputEvent], tokens: Sequence[LogProbs]
    ) -> list[Json]:
        """Blocks begin, grow and end."""
        return [chunk for event in events for chunk in self._event(event)]

    def progress(self, step: Progress, reused: int) -> list[Json]:
        """Nothing: there is no place for it."""
        return []

    def finish(self, index: int, reason: str, generation: Generation, last: bool) -> list[Json]:
        """Why it ends, and what it cost."""
        usage = generation.usage()
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        stop = generation.stop_string
        self._message["stop_reason"] = "stop_sequence" if stop else _REASONS[reason]
        self._message["stop_sequence"] = stop
        self._message["usage"] = {
            "input_tokens": usage["prompt_tokens"] - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": usage["completion_tokens"],
        }
        delta = {name: self._message[name] for name in ("stop_reason", "stop_sequence")}
        end = {"type": "message_delta", "delta": delta, "usage": self._message["usage"]}
        return [*self._close(), end, {"type": "message_stop"}]

    def whole(self) -> Json:
        """The document of an answer that is not streamed."""
        return {**self._message, "content": self._blocks}

    def encode(self, chunk: Json) -> bytes:
        """An event with its name."""
        return b"event: %s\ndata: %s\n\n" % (chunk["type"].encode(), msgspec.json.encode(chunk))

    def failed(self, error: ApiError) -> Json:
        """An error in a stream."""
        return error.anthropic_body()

    def _event(self, event: OutputEvent) -> list[Json]:
        match event:
            case ContentText(text=text):
                return self._grow("text", "text_delta", "text", text)
            case ReasoningText(text=text):
                return self._grow("thinking", "thinking_delta", "thinking", text)
            case ToolCallStart():
                call = {"id": f"toolu_{uuid.uuid4().hex[:24]}", "name": event.name, "input": {}}
                self._arguments = ""
                return self._begin({"type": "tool_use", **call})
            case ToolCallArguments(piece=piece):
                self._arguments += piece
                return [self._delta("input_json_delta", "partial_json", piece)]
            case ToolCallEnd():
                return self._end_call(complete=event.complete)

    def _grow(self, kind: str, delta: str, field: str, text: str) -> list[Json]:
        chunks: list[Json] = []
        if not self._open or self._blocks[-1]["type"] != kind:
            more = {"signature": ""} if kind == "thinking" else {}
            chunks = self._begin({"type": kind, field: "", **more})
        self._blocks[-1][field] += text
        return [*chunks, self._delta(delta, field, text)]

    def _end_call(self, *, complete: bool) -> list[Json]:
        chunks = self._close()
        if complete:
            self._blocks[-1]["input"] = msgspec.json.decode(self._arguments or "{}")
        else:
            self._blocks.pop()
        return chunks

    def _begin(self, block: dict[str, Any]) -> list[Json]:
        closed = self._close()
        self._blocks.append(block)
        self._open = True
        start = {"type": "content_block_start", "index": self._at, "content_block": dict(block)}
        return [*closed, start]

    def _delta(self, kind: str, field: str, text: str) -> Json:
        delta = {"type": kind, field: text}
        return {"type": "content_block_delta", "index": self._at, "delta": delta}

    def _close(self) -> list[Json]:
        if not self._open:
            return []
        self._open = False
        return [{"type": "content_block_stop", "index": self._at}]

    @property
    def _at(self) -> int:
        return len(self._blocks) - 1
