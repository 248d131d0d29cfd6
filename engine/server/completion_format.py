"""The JSON of /v1/completions, one choice for each prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.messages import LogProbs
from engine.output_events import ContentText, OutputEvent
from engine.server.format import Frame, Json, OpenAiEvents, add_usage, token_logprob
from engine.server.generation import Generation
from engine.server.text_model import TextModel
from engine.server.ticket import Progress


class CompletionFormat(OpenAiEvents):
    """Implements `Format`."""

    def __init__(
        self, model: str, text: TextModel, *, choices: int, logprobs: bool, openai_usage: bool
    ) -> None:
        self._frame = Frame("text_completion", "cmpl", model)
        self._text = text
        self._with_logprobs = logprobs
        self._openai_usage = openai_usage
        self._texts = [""] * choices
        self._logprobs: list[list[Json]] = [[] for _ in range(choices)]
        self._offsets = [0] * choices
        self._sent = [0] * choices
        self._reasons: list[str] = [""] * choices
        self._usage: dict[str, Any] | None = None
        self._timings: Json = {}

    def first(self) -> list[Json]:
        """Nothing: a completion has no role."""
        return []

    def delta(
        self, index: int, events: Sequence[OutputEvent], tokens: Sequence[LogProbs]
    ) -> list[Json]:
        """One chunk with the new text."""
        self._logprobs[index] += [token_logprob(token, self._text) for token in tokens]
        text = "".join(event.text for event in events if isinstance(event, ContentText))
        self._texts[index] += text
        return [self._frame.around([self._choice(index, text, None)])] if text else []

    def progress(self, step: Progress, reused: int) -> list[Json]:
        """Nothing: there is no place for it."""
        return []

    def finish(self, index: int, reason: str, generation: Generation, last: bool) -> list[Json]:
        """The end of a choice; the last one carries the usage of all."""
        self._usage = add_usage(self._usage, generation.usage())
        self._timings = generation.timings()
        self._reasons[index] = reason
        choice = self._choice(index, "", reason)
        end = {"usage": self._usage, "timings": self._timings}
        if not last:
            return [self._frame.around([choice])]
        if self._openai_usage:
            return [self._frame.around([choice]), self._frame.around([], **end)]
        return [self._frame.around([choice], **end)]

    def whole(self) -> Json:
        """The document of an answer that is not streamed."""
        self._sent = [0] * len(self._texts)
        self._offsets = [0] * len(self._texts)
        pairs = enumerate(zip(self._texts, self._reasons, strict=True))
        choices = [self._choice(index, text, reason) for index, (text, reason) in pairs]
        return self._frame.around(choices, usage=self._usage, timings=self._timings)

    def _choice(self, index: int, text: str, reason: str | None) -> dict[str, Any]:
        choice = {"index": index, "text": text, "finish_reason": reason, "logprobs": None}
        if self._with_logprobs:
            choice["logprobs"] = self._new_logprobs(index)
        return choice

    def _new_logprobs(self, index: int) -> Json:
        """The four parallel lists of the old form, for the tokens that were not sent yet."""
        new = self._logprobs[index][self._sent[index] :]
        self._sent[index] += len(new)
        offsets = []
        for entry in new:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(entry["token"])
        return {
            "tokens": [entry["token"] for entry in new],
            "token_logprobs": [entry["logprob"] for entry in new],
            "top_logprobs": [
                {other["token"]: other["logprob"] for other in entry["top_logprobs"]}
                for entry in new
            ],
            "text_offset": offsets,
        }
