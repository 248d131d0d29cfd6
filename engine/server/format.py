"""What a kind of answer looks like on the wire, streamed or whole."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from engine.messages import LogProbs
from engine.output_events import OutputEvent
from engine.server.generation import Generation
from engine.server.http_errors import ApiError
from engine.server.text_model import TextModel
from engine.server.ticket import Progress

Json = Mapping[str, Any]


class Format(Protocol):
    """Builds the JSON of one HTTP answer; `index` is the number of the choice.

    done: what ends a stream.
    """

    done: bytes

    @property
    def keep_alive(self) -> bytes:
        """Sent while there is nothing to say."""
        ...

    def first(self) -> list[Json]:
        """Chunks before the first token."""
        ...

    def delta(
        self, index: int, events: Sequence[OutputEvent], tokens: Sequence[LogProbs]
    ) -> list[Json]:
        """Chunks for new text; none when there is nothing to say."""
        ...

    def progress(self, step: Progress, reused: int) -> list[Json]:
        """Chunks that tell how far the prompt is read."""
        ...

    def finish(self, index: int, reason: str, generation: Generation, last: bool) -> list[Json]:
        """The end of a choice; `last`: also of the answer."""
        ...

    def whole(self) -> Json:
        """The answer as one document, from all that `delta` and `finish` were given."""
        ...

    def encode(self, chunk: Json) -> bytes:
        """A chunk as a server-sent event."""
        ...

    def failed(self, error: ApiError) -> Json:
        """The chunk about an error inside a stream."""
        ...


class OpenAiEvents:
    """The parts of a `Format` that OpenAI's APIs share."""

    keep_alive = b": keep-alive\n\n"
    done = b"data: [DONE]\n\n"

    def encode(self, chunk: Json) -> bytes:
        """See `Format.encode`."""
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"

    def failed(self, error: ApiError) -> Json:
        """See `Format.failed`."""
        return error.body()


@dataclass(slots=True)
class Frame:
    """The fields that all chunks of an answer share."""

    kind: str
    prefix: str
    model: str
    id: str = field(init=False)
    created: int = field(init=False)

    def __post_init__(self) -> None:
        self.id = f"{self.prefix}-{uuid.uuid4().hex[:24]}"
        self.created = int(time.time())

    def around(self, choices: Sequence[Json], **more: Any) -> Json:
        """A chunk or document with `choices`."""
        frame = {"id": self.id, "object": self.kind, "created": self.created, "model": self.model}
        return {**frame, "choices": choices, **more}


def add_usage(total: dict[str, Any] | None, usage: dict[str, Any]) -> dict[str, Any]:
    """The sum of two usages."""
    if total is None:
        return usage
    details = {
        name: total["prompt_tokens_details"][name] + n
        for name, n in usage["prompt_tokens_details"].items()
    }
    counts = {k: total[k] + n for k, n in usage.items() if k != "prompt_tokens_details"}
    return {**counts, "prompt_tokens_details": details}


def token_logprob(token: LogProbs, text: TextModel) -> dict[str, Any]:
    """One entry of a chat's `logprobs.content`."""
    others = [_one(other, logprob, text) for other, logprob in token.others]
    return {**_one(token.id, token.logprob, text), "top_logprobs": others}


LOWEST_LOGPROB = -9999.0
"""JSON has no infinity; this is what OpenAI sends for an impossible token."""


def _one(token: int, logprob: float, text: TextModel) -> dict[str, Any]:
    raw = text.token_bytes(token)
    shown = raw.decode("utf-8", "replace")
    return {"token": shown, "logprob": max(logprob, LOWEST_LOGPROB), "bytes": list(raw)}
