"""Decode speed: tokens per second of several conversations together, drafts off and on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench import peers
from bench.pipelines import clear_all
from bench.records import Measurement
from bench.texts import WORKLOADS, Encode, prompts
from engine.engine import Engine, EngineOptions
from engine.pipeline import Pipeline
from engine.request import Finished, Produced, Request

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: tokens behind each stream's first one, the time they took, and drafts."""

    tokens: int
    seconds: float
    accepted: int
    offered: int

    @property
    def tok_s(self) -> float:
        """Tokens per second of all streams together."""
        return self.tokens / self.seconds


def decode_prompts(encode: Encode, streams: int) -> list[Ids]:
    """A prompt for each stream: at most 64 tokens of the workloads in turn."""
    known = prompts(encode, 64)
    return [known[WORKLOADS[i % len(WORKLOADS)]] for i in range(streams)]


def decode_once(
    pipeline: Pipeline, options: EngineOptions, prompts: Sequence[Ids], tokens: int
) -> Sample:
    """Greedy decoding of `tokens` tokens behind each prompt, end tokens ignored.

    The clock runs from the window in which the last stream got its first token.
    """
    clear_all(pipeline)
    engine = Engine(pipeline, replace(options, eos_ids=frozenset()))
    for index, prompt in enumerate(prompts):
        engine.submit(Request(id=str(index), tokens=prompt, max_new=tokens, slot=index))
    begun: set[str] = set()
    while len(begun) < len(prompts):
        begun |= {event.id for event in engine.step() if isinstance(event, Produced)}
    start = time.perf_counter()
    produced = accepted = offered = 0
    while engine.busy:
        for event in engine.step():
            if isinstance(event, Produced):
                produced += 1
            elif isinstance(event, Finished):
                accepted += event.accepted
                offered += event.offered
    return Sample(produced, time.perf_counter() - start, accepted, offered)


def measure(
    pipeline: Pipeline,
    encode: Encode,
    options: EngineOptions,
    *,
    streams: Sequence[int],
    tokens: int,
    repeat: int,
    progress: Callable[[str], None],
) -> list[Measurement]:
    """Every count of streams, with drafts where the pipeline has a draft layer.

    A pipeline with one feeds it in every window, so without drafts means loaded without it.
    """
    suffix = ".drafts" if pipeline.can_draft and options.spec > 1 else ""
    decode_once(pipeline, options, decode_prompts(encode, 1), 4)
    found = []
    for count in streams:
        prompts = decode_prompts(encode, count)
        runs = [decode_once(pipeline, options, prompts, tokens) for _ in range(repeat)]
        one = Measurement(
            name=f"decode.streams{count}{suffix}.tok_s",
            unit="tok/s",
            samples=tuple(run.tok_s for run in runs),
            details={
                "streams": count,
                "tokens": tokens,
                "drafts_offered": runs[0].offered,
                "drafts_accepted": runs[0].accepted,
            },
        )
        progress(f"{one.name}: {one.value:.1f} tok/s")
        found.append(one)
    return found


def measure_peer(
    model: Path, encode: Encode, *, tokens: int, threads: int, repeat: int
) -> list[Measurement]:
    """llama.cpp on the same file: one stream, greedy. Empty without the xllamacpp wheel."""
    if not peers.available():
        return []
    prompt = decode_prompts(encode, 1)[0]
    # More threads are not always faster, least of all beside other programs: the best count.
    tries = {
        count: tuple(peers.decode_speed(model, prompt, tokens, count) for _ in range(repeat))
        for count in sorted({1, threads})
    }
    best = max(tries, key=lambda count: max(tries[count]))
    return [
        Measurement(
            name="decode.streams1.llamacpp.tok_s",
            unit="tok/s",
            samples=tries[best],
            details={
                "streams": 1,
                "tokens": tokens,
                "threads": best,
                "peer": f"xllamacpp {peers.version()}",
            },
        )
    ]
