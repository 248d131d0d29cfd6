"""Clients that ask an OpenAI server at the same time: how long they wait, and what it writes.

Each client of a round asks one question of its own, all at the same moment, and streams the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import httpx

from bench.client import PERCENTILES, Heard, ask, faults_told, fresh_text, percentile
from bench.records import Measurement
from bench.timeline import timeline
from bench.watch import GPU_EVERY_S, AskGpu, Watch, gpu_of


@dataclass(frozen=True, slots=True)
class Load:
    """`rounds` of `clients`, each with a prompt of `words` and an answer of `tokens` at most."""

    clients: int
    rounds: int
    words: int
    tokens: int
    seed: int

    def prompt(self, number: int, client: int) -> str:
        """What a client asks in a round."""
        return fresh_text(f"{self.seed} {self.clients} {number} {client}", self.words)


def measure(
    http: httpx.Client, model: str, loads: Sequence[Load], progress: Callable[[str], None]
) -> Iterator[Measurement]:
    """Rates, percentiles and how busy the card was, of each load, a sample a round.

    Raises `ConfigError` when the server cannot be reached or fails one request.
    """
    with faults_told(http):
        ask(http, model, "Say one word.", 2)
        ask_gpu = gpu_of(http, progress)
        for load in loads:
            yield from _measure(http, model, load, progress, ask_gpu)


def _measure(
    http: httpx.Client, model: str, load: Load, progress: Callable[[str], None], ask_gpu: AskGpu
) -> Iterator[Measurement]:
    rounds, busy = [], []
    with ThreadPoolExecutor(load.clients) as clients:
        for number in range(load.rounds):
            prompts = [load.prompt(number, client) for client in range(load.clients)]
            asked = partial(ask, http, model, tokens=load.tokens)
            with Watch(ask_gpu, GPU_EVERY_S) as gpu:
                rounds.append(list(clients.map(asked, prompts)))
            busy += [] if gpu.mean is None else [gpu.mean]
            rate = _rate(rounds[-1])
            progress(f"{load.clients} clients, round {number + 1}: {rate:.1f} tok/s")
    everyone = [heard for one in rounds for heard in one]
    details = {
        "clients": load.clients,
        "rounds": load.rounds,
        "requests": len(everyone),
        "prompt_words": load.words,
        "prompt_tokens": sum(heard.prompt for heard in everyone),
        "answer_tokens": sum(heard.tokens for heard in everyone),
        "seed": load.seed,
    }
    start = f"serve.clients{load.clients}"

    def of(metric: str, unit: str, value: Callable[[list[Heard]], float]) -> Measurement:
        samples = tuple(value(one) for one in rounds)
        return Measurement(metric=f"{start}.{metric}", unit=unit, samples=samples, details=details)

    every = of("tok_s", "tok/s", _rate)
    yield replace(every, details={**details, "timeline": _timeline(min(rounds, key=_rate))})
    for share in PERCENTILES:
        yield of(f"ttft_p{share}_ms", "ms", partial(_ttft_ms, share))
    for share in PERCENTILES:
        yield of(f"tpot_p{share}_ms", "ms", partial(_tpot_ms, share))
    if busy:
        name = f"{start}.gpu_share"
        yield Measurement(metric=name, unit="share", samples=tuple(busy), details=details)


def _timeline(one: list[Heard]) -> dict[str, Any]:
    """Of a round, since its first question."""
    begin, end = min(heard.sent for heard in one), max(heard.last for heard in one)
    return timeline([heard.moments for heard in one], begin, end)


def _ttft_ms(share: int, one: list[Heard]) -> float:
    return percentile([heard.ttft_ms for heard in one], share)


def _tpot_ms(share: int, one: list[Heard]) -> float:
    """Answers of one token have no time between two."""
    return percentile([heard.tpot_ms for heard in one if heard.tokens > 1] or [0.0], share)


def _rate(one: list[Heard]) -> float:
    """Tokens of all answers over the time from the first question to the last token."""
    spent = max(heard.last for heard in one) - min(heard.sent for heard in one)
    return sum(heard.tokens for heard in one) / max(spent, 1e-9)
