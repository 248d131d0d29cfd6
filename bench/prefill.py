"""Prompt speed: tokens per second until the first token of the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from bench.pipelines import MeasuredPipeline, clear_all
from bench.records import Measurement
from bench.texts import Encode, long_prompt
from engine.engine import Engine, EngineOptions
from engine.pipeline import Pipeline
from engine.request import Produced, Request


def prefill_once(pipeline: Pipeline, options: EngineOptions, prompt: tuple[int, ...]) -> float:
    """Seconds from a prompt to the first token behind it, in an empty slot."""
    clear_all(pipeline)
    engine = Engine(pipeline, replace(options, checkpoints=0))
    engine.submit(Request(id="0", tokens=prompt, max_new=1, slot=0))
    start = time.perf_counter()
    while not any(isinstance(event, Produced) for event in engine.step()):
        pass
    return time.perf_counter() - start


def measure(
    pipeline: MeasuredPipeline,
    encode: Encode,
    options: EngineOptions,
    lengths: Sequence[int],
    *,
    repeat: int,
    progress: Callable[[str], None],
    floor: Callable[[int, int, int], float] | None = None,
) -> Iterator[Measurement]:
    """Every length, without drafts; `floor` gives the least seconds of a window by its
    conversations, rows and tokens before them."""
    pipeline.pause_drafts(True)
    options = replace(options, spec=1)
    prefill_once(pipeline, options, long_prompt(encode, min(lengths)))
    for length in lengths:
        prompt = long_prompt(encode, length)
        runs = [prefill_once(pipeline, options, prompt) for _ in range(repeat)]
        details: dict[str, float] = {"tokens": length, "chunk": options.chunk}
        if floor is not None:
            starts = range(0, length, options.chunk)
            least = sum(floor(1, min(options.chunk, length - at), at) for at in starts)
            details["floor_tok_s"] = length / least
        found = Measurement(
            metric=f"prefill.{length}.tok_s",
            unit="tok/s",
            samples=tuple(length / seconds for seconds in runs),
            details=details,
        )
        progress(f"{found.metric}: {found.value:.0f} tok/s")
        yield found
