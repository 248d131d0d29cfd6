"""Prompts that join a busy server: how long those who write stand still, and what joining costs.

Scenarios against any OpenAI server; each is played some times, and gives a sample a time:

* `joiner`, `two_joiners`: one or two long prompts come while streams write;
* `read_alone`: the long prompt on an idle server;
* `followup`: a short question a second behind a long prompt;
* `next_turn`: a question behind a long conversation: from the slot that holds it, from a checkpoint
  (another question than the first time), behind a crowd that took its slot, and a fresh prompt with
  as many tokens as the server had to read of each of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import httpx

from bench.client import Heard, Message, ask, faults_told, fresh_text, words_for
from bench.records import Measurement
from bench.timeline import timeline
from bench.watch import GPU_EVERY_S, AskGpu, Watch, gpu_of

BEHIND_S = 1.0
"""Streams are watched so long after the last joiner's first token."""
QUESTION_AFTER_S = 1.0
JOINERS_APART_S = 6.0
BEFORE_S = 0.5
"""What is kept of the streams before somebody joins."""
BEGUN = 8
"""Pieces that every stream has written when a prompt joins."""
SHORT_ANSWER = 16
QUESTION = "And what follows from that, in one sentence?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Numbers of tokens, and how many `streams` write and how many others make a `crowd`."""

    long: int
    second: int
    history: int
    answer: int
    streams: int
    crowd: int


@dataclass(frozen=True, slots=True)
class Bench:
    """A server, its model, and texts that no round shares with another."""

    http: httpx.Client
    model: str
    words: Callable[[int], int]
    sizes: Sizes
    seed: str
    ask_gpu: AskGpu

    def text(self, name: str, tokens: int) -> str:
        """About so many tokens."""
        return fresh_text(f"{self.seed} {name}", self.words(tokens))

    def ask(self, said: str | Sequence[Message]) -> Heard:
        """A short answer."""
        return ask(self.http, self.model, said, SHORT_ANSWER, thinks=False)

    def read(self, name: str, tokens: int) -> Heard:
        """A short answer to a prompt of so many tokens."""
        return self.ask(self.text(name, tokens))


@dataclass(frozen=True, slots=True)
class Round:
    """The numbers of a scenario that was played, and when its streams wrote."""

    numbers: Mapping[str, float]
    timeline: Mapping[str, Any] | None = None


def measure(
    http: httpx.Client,
    model: str,
    scenarios: list[str],
    sizes: Sizes,
    *,
    repeat: int,
    seed: int,
    progress: Callable[[str], None],
) -> Iterator[Measurement]:
    """Every number of every scenario, one sample a time it is played.

    Raises `ConfigError` when the server cannot be reached or fails one request.
    """
    words = words_for(http, model)
    with faults_told(http):
        ask_gpu = gpu_of(http, progress)
        for name in scenarios:
            rounds = []
            for number in range(repeat):
                bench = Bench(http, model, words, sizes, f"{seed} {name} {number}", ask_gpu)
                rounds.append(SCENARIOS[name](bench))
                told = ", ".join(f"{key} {value:.4g}" for key, value in rounds[-1].numbers.items())
                progress(f"{name}, {number + 1} of {repeat}: {told}")
            for key in rounds[0].numbers:
                samples = tuple(one.numbers[key] for one in rounds if key in one.numbers)
                details = {"scenario": name, "seed": seed, **_told(sizes)}
                if key == STOP:
                    worst = max(rounds, key=lambda one: one.numbers[STOP])
                    details["timeline"] = worst.timeline
                yield Measurement(
                    metric=f"join.{name}.{key}",
                    unit=UNITS[key.rpartition("_")[2]],
                    samples=samples,
                    details=details,
                )


def longest_stop_s(moments: list[float], begin: float, end: float) -> float:
    """The longest time without a piece between `begin` and `end`; the last piece before counts from
    `begin`, and a stream that ended before `end` until its last piece."""
    inside = [moment for moment in moments if begin < moment < end]
    behind = [end] if moments and moments[-1] >= end else []
    return max((b - a for a, b in pairwise([begin, *inside, *behind])), default=0.0)


def _joined(bench: Bench, joiners: list[tuple[str, int]]) -> Round:
    """Streams write; the prompts of so many tokens join, `JOINERS_APART_S` from one to the next."""
    streams = [_Stream(bench, f"stream {at}") for at in range(bench.sizes.streams)]
    with ThreadPoolExecutor(len(streams) + len(joiners)) as clients:
        writing = [clients.submit(stream.play) for stream in streams]
        try:
            for stream, future in zip(streams, writing, strict=True):
                stream.wait_until_begun(future)
            with Watch(bench.ask_gpu, GPU_EVERY_S) as gpu:
                asked = []
                for number, (name, tokens) in enumerate(joiners):
                    if number:
                        threading.Event().wait(JOINERS_APART_S)
                    asked.append(clients.submit(bench.read, name, tokens))
                heard = [future.result() for future in asked]
                begin, end = heard[0].sent, max(one.first for one in heard) + BEHIND_S
                # The answers of joiners are shorter than the time that streams are watched behind.
                threading.Event().wait(max(0.0, end - max(one.end for one in heard)))
        finally:
            for stream in streams:
                stream.leave.set()
        for future in writing:
            future.result()
    moments = [stream.moments for stream in streams]
    pieces = sum(begin < moment < end for one in moments for moment in one)
    found = {f"{name}_ttft_ms": one.ttft_ms for (name, _), one in zip(joiners, heard, strict=True)}
    found[STOP] = max(longest_stop_s(one, begin, end) for one in moments)
    found["streams_meanwhile_pieces"] = pieces
    found["streams_meanwhile_rate"] = pieces / (end - begin)
    if gpu.mean is not None:
        found["gpu_share"] = gpu.mean
    reads = [(name, one.sent, one.first) for (name, _), one in zip(joiners, heard, strict=True)]
    return Round(found, timeline(moments, begin - BEFORE_S, end, reads))


class _Stream:
    """A client that writes until it is told to leave."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.moments: list[float] = []
        self.leave = threading.Event()
        self._begun = threading.Event()
        self._bench, self._name = bench, name

    def play(self) -> None:
        """One long answer."""
        bench = self._bench
        question = bench.text(self._name, 64)
        try:
            ask(
                bench.http, bench.model, question, bench.sizes.answer, thinks=False,
                leaves=self._leaves,
            )  # fmt: skip
        finally:
            self._begun.set()

    def wait_until_begun(self, playing: Future[None]) -> None:
        """Until it has written a little, or ended; raises what ended it."""
        self._begun.wait()
        if playing.done():
            playing.result()

    def _leaves(self, moments: list[float]) -> bool:
        self.moments.append(moments[-1])
        if len(moments) >= BEGUN:
            self._begun.set()
        return self.leave.is_set()


def _joiner(bench: Bench) -> Round:
    alone = bench.read("alone", bench.sizes.long).ttft_ms
    found = _joined(bench, [("long", bench.sizes.long)])
    cost = found.numbers["long_ttft_ms"] / alone - 1
    return replace(found, numbers={**found.numbers, "alone_ttft_ms": alone, "cost_share": cost})


def _two_joiners(bench: Bench) -> Round:
    return _joined(bench, [("long", bench.sizes.long), ("second", bench.sizes.second)])


def _read_alone(bench: Bench) -> Round:
    return Round({"long_ttft_ms": bench.read("alone", bench.sizes.long).ttft_ms})


def _followup(bench: Bench) -> Round:
    with ThreadPoolExecutor(1) as client:
        reading = client.submit(bench.read, "long", bench.sizes.long)
        threading.Event().wait(QUESTION_AFTER_S)
        question = bench.read("question", 16)
        long = reading.result()
    return Round({"question_ttft_ms": question.ttft_ms, "long_ttft_ms": long.ttft_ms})


def _next_turn(bench: Bench) -> Round:
    first = [_user(bench.text("history", bench.sizes.history))]
    answer = bench.ask(first)
    turn = [*first, {"role": "assistant", "content": answer.text}]

    found: dict[str, float] = {}

    def next_turn(name: str, question: str) -> None:
        heard = bench.ask([*turn, _user(question)])
        new = heard.prompt - heard.cached
        fresh = bench.read(f"fresh {name}", max(1, new))
        found[f"{name}_ttft_ms"] = heard.ttft_ms
        found[f"{name}_new_tokens"] = new
        found[f"{name}_fresh_tokens"] = fresh.prompt - fresh.cached
        found[f"{name}_fresh_ttft_ms"] = fresh.ttft_ms
        found[f"{name}_more_ms"] = heard.ttft_ms - fresh.ttft_ms

    next_turn("slot", QUESTION)
    # What the slot holds goes on with another question: the turn's end is a state to go back to.
    next_turn("checkpoint", "Say the same in other words, in one sentence.")
    with ThreadPoolExecutor(bench.sizes.crowd) as clients:
        list(clients.map(lambda at: bench.read(f"crowd {at}", 64), range(bench.sizes.crowd)))
    next_turn("behind_crowd", "Say it once more, in one sentence.")
    return Round(found)


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _told(sizes: Sizes) -> dict[str, Any]:
    return {f"{name}_tokens": getattr(sizes, name) for name in ("long", "second", "history")} | {
        "streams": sizes.streams,
        "crowd": sizes.crowd,
    }


STOP = "longest_stop_s"
UNITS = {
    "ms": "ms",
    "s": "s",
    "share": "share",
    "tokens": "tokens",
    "pieces": "pieces",
    "rate": "pieces/s",
}
SCENARIOS: Mapping[str, Callable[[Bench], Round]] = {
    "joiner": _joiner,
    "two_joiners": _two_joiners,
    "read_alone": _read_alone,
    "followup": _followup,
    "next_turn": _next_turn,
}
