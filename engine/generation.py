"""One answer, without a process around the engine."""

from __future__ import annotations

from collections.abc import Sequence

from engine.engine import Engine, EngineOptions
from engine.errors import RequestError
from engine.pipeline import Pipeline
from engine.request import Finished, Produced, Request
from engine.sampling import Sampling


def generate(
    pipeline: Pipeline,
    options: EngineOptions,
    ids: Sequence[int],
    max_new: int,
    sampling: Sampling | None = None,
) -> list[int]:
    """Up to `max_new` tokens after `ids`, greedy by default, with an end token if there was one.

    Takes the pipeline over: whatever its slots hold is forgotten. Raises `RequestError`.
    """
    engine = Engine(pipeline, options)
    request = Request(id="", tokens=tuple(ids), max_new=max_new, sampling=sampling or Sampling())
    engine.submit(request)
    tokens: list[int] = []
    while engine.busy:
        for event in engine.step():
            if isinstance(event, Produced):
                tokens.append(event.choice.token)
            elif isinstance(event, Finished) and event.finish == "error":
                raise RequestError(event.error)
    return tokens
