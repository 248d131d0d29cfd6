"""Clients that leave a running server in mid-answer take nothing from those who stay.

Over HTTP, against any server that speaks OpenAI's completions: every answer is the one that it gave
to the same prompt alone, while others leave and after they have.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import httpx
import msgspec

from bench.client import faults_told
from bench.texts import WORKLOADS, workload
from engine.errors import ConfigError

SUITE = "early-close"
MEANING = "clients that leave in mid-answer, over HTTP"
PROMPT_CHARACTERS = 300
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class EarlyClose:
    """`answers` were compared, `left` streams were closed early; `difference` is the first one."""

    answers: int
    left: int
    seconds: float
    difference: str = ""


def early_close(http: httpx.Client, *, tokens: int) -> EarlyClose:
    """Plays `ROUNDS` rounds; `http` has the server's address and key. Answers have `tokens` tokens
    at most.

    Raises `ConfigError` when the server cannot be reached or refuses.
    """
    start = time.perf_counter()
    prompts = [workload(name)[:PROMPT_CHARACTERS] for name in WORKLOADS]
    with faults_told(http):
        alone = [_answer(http, prompt, tokens) for prompt in prompts]
        answers = left = 0
        for number in range(ROUNDS):
            found = _round(http, prompts, tokens, number)
            answers, left = answers + len(found), left + len(prompts)
            for at, text in found:
                if text != alone[at]:
                    seconds = time.perf_counter() - start
                    return EarlyClose(answers, left, seconds, _difference(alone[at], text))
    return EarlyClose(answers, left, time.perf_counter() - start)


def _round(
    http: httpx.Client, prompts: Sequence[str], tokens: int, number: int
) -> list[tuple[int, str]]:
    """Answers by the number of their prompt: one beside clients that leave, all after they left."""
    stays = number % len(prompts)
    with ThreadPoolExecutor(len(prompts) + 1) as clients:
        one = clients.submit(_answer, http, prompts[stays], tokens)
        for at, prompt in enumerate(prompts):
            clients.submit(_leave, http, prompt, tokens, 1 + (2 * at + number) % 7)
        beside = one.result()
    after = [(at, _answer(http, prompt, tokens)) for at, prompt in enumerate(prompts)]
    return [(stays, beside), *after]


def _body(prompt: str, tokens: int) -> dict[str, object]:
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}


def _answer(http: httpx.Client, prompt: str, tokens: int) -> str:
    """The whole text, as it is streamed."""
    text = ""
    with http.stream("POST", "/v1/completions", json=_body(prompt, tokens)) as response:
        if response.is_error:
            response.read()
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                chunk = msgspec.json.decode(line.removeprefix("data: "))
                if "error" in chunk:
                    raise ConfigError(f"{http.base_url}: {chunk['error'].get('message')}")
                text += "".join(choice["text"] for choice in chunk["choices"])
    return text


def _leave(http: httpx.Client, prompt: str, tokens: int, lines: int) -> None:
    """Closes the connection after so many events."""
    with http.stream("POST", "/v1/completions", json=_body(prompt, tokens)) as response:
        for _ in islice(filter(None, response.iter_lines()), lines):
            pass


def _difference(expected: str, found: str) -> str:
    pairs = enumerate(zip(expected, found, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(expected), len(found)))
    return f"at character {at}: {found[at : at + 20]!r} instead of {expected[at : at + 20]!r}"
