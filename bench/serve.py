"""Clients that ask an OpenAI server at the same time: how long they wait, and what it writes.

Each client of a round asks one question of its own, all at the same moment, and streams the answer.
The questions follow from a seed; no two begin alike, so no server has read them before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import httpx
import msgspec

from bench.records import Measurement
from bench.texts import WORKLOADS, workload
from engine.errors import ConfigError

PATIENCE_S = 600.0
PERCENTILES = (50, 90, 99)


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
        random = Random(f"{self.seed} {self.clients} {number} {client}")
        words = " ".join(map(workload, WORKLOADS)).split()
        begin = random.randrange(len(words))
        said = [words[(begin + i) % len(words)] for i in range(max(0, self.words - 2))]
        return " ".join([f"{random.getrandbits(64):x}", *said, "Continue."])


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer; moments in seconds. `prompt` is what the server counts, 0 where it does not."""

    sent: float
    first: float
    last: float
    tokens: int
    prompt: int

    @property
    def ttft_ms(self) -> float:
        """Until the first text."""
        return 1e3 * (self.first - self.sent)

    @property
    def tpot_ms(self) -> float:
        """Between two tokens of the answer, on average."""
        return 1e3 * (self.last - self.first) / max(1, self.tokens - 1)


def connect(url: str, api_key: str | None) -> httpx.Client:
    """A client of the server at `url`, which may end in /v1 or not."""
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    base = url.rstrip("/").removesuffix("/v1")
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.Client(base_url=base, headers=headers, timeout=PATIENCE_S, limits=limits)


def first_model(http: httpx.Client) -> str:
    """The first that the server lists. Raises `ConfigError` as `measure` does."""
    with _faults_told(http):
        answer = http.get("/v1/models")
        answer.raise_for_status()
        found = answer.json().get("data") or [{}]
    return str(found[0].get("id", ""))


def measure(
    http: httpx.Client, model: str, loads: Sequence[Load], progress: Callable[[str], None]
) -> Iterator[Measurement]:
    """Rates and percentiles of each load, a sample a round.

    Raises `ConfigError` when the server cannot be reached or fails one request.
    """
    with _faults_told(http):
        _ask(http, model, "Say one word.", 2)
        for load in loads:
            yield from _measure(http, model, load, progress)


def percentile(values: Sequence[float], share: int) -> float:
    """The smallest value that `share` percent of `values` do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def _measure(
    http: httpx.Client, model: str, load: Load, progress: Callable[[str], None]
) -> Iterator[Measurement]:
    rounds = []
    with ThreadPoolExecutor(load.clients) as clients:
        for number in range(load.rounds):
            prompts = [load.prompt(number, client) for client in range(load.clients)]
            rounds.append(
                list(clients.map(partial(_ask, http, model, tokens=load.tokens), prompts))
            )
            rate = _rate(rounds[-1])
            progress(f"{load.clients} clients, round {number + 1}: {rate:.1f} tok/s")
    everyone = [heard for one in rounds for heard in one]
    details = {
        "clients": load.clients,
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

    yield of("tok_s", "tok/s", _rate)
    for share in PERCENTILES:
        yield of(f"ttft_p{share}_ms", "ms", partial(_ttft_ms, share))
    for share in PERCENTILES:
        yield of(f"tpot_p{share}_ms", "ms", partial(_tpot_ms, share))


def _ttft_ms(share: int, one: list[Heard]) -> float:
    return percentile([heard.ttft_ms for heard in one], share)


def _tpot_ms(share: int, one: list[Heard]) -> float:
    """Answers of one token have no time between two."""
    return percentile([heard.tpot_ms for heard in one if heard.tokens > 1] or [0.0], share)


def _rate(one: list[Heard]) -> float:
    """Tokens of all answers over the time from the first question to the last token."""
    spent = max(heard.last for heard in one) - min(heard.sent for heard in one)
    return sum(heard.tokens for heard in one) / max(spent, 1e-9)


@contextmanager
def _faults_told(http: httpx.Client) -> Iterator[None]:
    try:
        yield
    except httpx.HTTPStatusError as error:
        text = error.response.text[:200]
        raise ConfigError(f"{http.base_url}: {error.response.status_code}: {text}") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"{http.base_url}: {error}", "is the server running?") from None


def _ask(http: httpx.Client, model: str, prompt: str, tokens: int) -> Heard:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sent = time.perf_counter()
    first, last, pieces = 0.0, 0.0, 0
    usage: dict[str, int] = {}
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.is_error:
            response.read()
        response.raise_for_status()
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            now = time.perf_counter()
            chunk = msgspec.json.decode(line.removeprefix("data: "))
            if "error" in chunk:
                raise ConfigError(f"{http.base_url}: {chunk['error'].get('message')}")
            usage = chunk.get("usage") or usage
            if _has_text(chunk):
                first, last, pieces = first or now, now, pieces + 1
    end = time.perf_counter()
    count = int(usage.get("completion_tokens", pieces))
    return Heard(sent, first or end, last or end, count, int(usage.get("prompt_tokens", 0)))


def _has_text(chunk: dict[str, Any]) -> bool:
    """Whether a chunk of a stream has a part of the answer, its reasoning or a tool call."""
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        if any(value for name, value in delta.items() if name != "role"):
            return True
    return False
