"""A client of any OpenAI server: what it asks, and when it hears what.

Texts follow from a seed; no two begin alike, so no server has read them before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx
import msgspec

from bench.texts import WORKLOADS, workload
from engine.errors import ConfigError

PATIENCE_S = 600.0
PERCENTILES = (50, 90, 99)
_SAMPLE_WORDS = 100

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer. `moments`: when each piece of text came, in seconds of the clock that `sent` is
    of. `prompt` and `cached`, the tokens of it that were not read, are what the server counts, 0
    where it does not."""

    sent: float
    end: float
    moments: tuple[float, ...]
    text: str
    tokens: int
    prompt: int
    cached: int = 0
    left: bool = False
    """Whether the client left before the end."""

    @property
    def first(self) -> float:
        """The moment of the first text."""
        return self.moments[0] if self.moments else self.end

    @property
    def last(self) -> float:
        """The moment of the last text."""
        return self.moments[-1] if self.moments else self.end

    @property
    def ttft_ms(self) -> float:
        """Until the first text."""
        return 1e3 * (self.first - self.sent)

    @property
    def tpot_ms(self) -> float:
        """Between two tokens of the answer, on average."""
        return 1e3 * (self.last - self.first) / max(1, self.tokens - 1)


def fresh_text(seed: str, words: int) -> str:
    """Words of the workloads, from a place that follows from the seed, after its own number."""
    random = Random(seed)
    known = " ".join(map(workload, WORKLOADS)).split()
    begin = random.randrange(len(known))
    said = [known[(begin + i) % len(known)] for i in range(max(0, words - 2))]
    return " ".join([f"{random.getrandbits(64):x}", *said, "Continue."])


def percentile(values: Sequence[float], share: int) -> float:
    """The smallest value that `share` percent of `values` do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def connect(url: str, api_key: str | None) -> httpx.Client:
    """A client of the server at `url`, which may end in /v1 or not."""
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    base = url.rstrip("/").removesuffix("/v1")
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.Client(base_url=base, headers=headers, timeout=PATIENCE_S, limits=limits)


def first_model(http: httpx.Client) -> str:
    """The first that the server lists. Raises `ConfigError` as `faults_told` does."""
    with faults_told(http):
        answer = http.get("/v1/models")
        answer.raise_for_status()
        found = answer.json().get("data") or [{}]
    return str(found[0].get("id", ""))


@contextmanager
def faults_told(http: httpx.Client) -> Iterator[None]:
    """Raises `ConfigError` when the server cannot be reached or fails a request."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        text = error.response.text[:200]
        raise ConfigError(f"{http.base_url}: {error.response.status_code}: {text}") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"{http.base_url}: {error}", "is the server running?") from None


def ask(
    http: httpx.Client,
    model: str,
    said: str | Sequence[Message],
    tokens: int,
    *,
    thinks: bool = True,
    leaves: Callable[[list[float]], bool] = lambda moments: False,
) -> Heard:
    """Streams one greedy answer to a question, or to a conversation. After each piece `leaves` is
    asked, with the moments so far, whether the client goes. With `thinks` off the template is told
    so: a next turn then begins with all that the server has computed.

    Raises `httpx.HTTPError`, and `ConfigError` for an error in the stream.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": said}] if isinstance(said, str) else list(said),
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if not thinks:
        body["chat_template_kwargs"] = {"enable_thinking": False}
    sent = time.perf_counter()
    moments: list[float] = []
    pieces: list[str] = []
    usage: dict[str, Any] = {}
    left = False
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.is_error:
            response.read()
        response.raise_for_status()
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = msgspec.json.decode(line.removeprefix("data: "))
            if "error" in chunk:
                raise ConfigError(f"{http.base_url}: {chunk['error'].get('message')}")
            usage = chunk.get("usage") or usage
            if text := _text(chunk):
                moments.append(time.perf_counter())
                pieces.append(text)
                if left := leaves(moments):
                    break
    count = int(usage.get("completion_tokens", len(moments)))
    prompt = int(usage.get("prompt_tokens", 0))
    cached = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    text = "".join(pieces)
    return Heard(sent, time.perf_counter(), tuple(moments), text, count, prompt, cached, left=left)


def words_for(http: httpx.Client, model: str) -> Callable[[int], int]:
    """From tokens to as many words of `fresh_text`, by what the server counts of some.

    Raises `ConfigError` for a server that does not count.
    """
    with faults_told(http):
        heard = ask(http, model, fresh_text("how long a word is", _SAMPLE_WORDS), 1)
    if not heard.prompt:
        raise ConfigError(
            f"{http.base_url}: does not say how many tokens a prompt has",
            "lengths of prompts are given in tokens, and need stream_options.include_usage",
        )
    return lambda tokens: max(2, tokens * _SAMPLE_WORDS // heard.prompt)


def _text(chunk: dict[str, Any]) -> str:
    """What a chunk of a stream has of the answer, its reasoning or a tool call."""
    found = ""
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        found += "".join(str(value) for name, value in delta.items() if name != "role" and value)
    return found
