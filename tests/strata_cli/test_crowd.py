"""The bundled model, its real engine and many clients at once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

import openai
import psutil
import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = 60
TOKENS = 16
QUESTIONS = ("What is a list?", "How do I open a file?", "Write a function that adds two numbers.")


@dataclass(frozen=True, slots=True)
class Ask:
    """A question and its sampling; seed None: greedy."""

    question: str
    seed: int | None


ASKS = tuple(Ask(question, seed) for question in QUESTIONS for seed in (None, 3, 4))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[openai.OpenAI, psutil.Process]]:
    """A client of a server that is ready, and the server's process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "strata_cli", "run", "--port", "0"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    address = ""
    for line in process.stderr:
        address = address or "".join(re.findall(r"listening on (http://\S+)", line))
        if line.startswith("ready"):
            break
    with ThreadPoolExecutor(1) as reader:
        reader.submit(process.stderr.read)  # so that the server never waits for a full pipe
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=300)
        yield client, psutil.Process(process.pid)
        process.kill()
        process.wait()


def answer(client: openai.OpenAI, ask: Ask) -> str:
    """The whole text of a streamed answer, with the model's thinking."""
    stream = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": ask.question}],
        max_tokens=TOKENS,
        temperature=0.0 if ask.seed is None else 1.0,
        seed=ask.seed,
        stream=True,
    )
    pieces = []
    for chunk in stream:
        for choice in chunk.choices:
            extra = choice.delta.model_extra or {}
            pieces.append(str(extra.get("reasoning_content") or choice.delta.content or ""))
    return "".join(pieces)


def test_sixty_clients_get_what_each_gets_alone(
    server: tuple[openai.OpenAI, psutil.Process],
) -> None:
    client, _ = server
    alone = {ask: answer(client, ask) for ask in ASKS}
    assert len(set(alone.values())) > len(ASKS) // 2, "the answers differ from each other"
    barrier = Barrier(CLIENTS)

    def one(index: int) -> tuple[Ask, str]:
        barrier.wait()
        ask = ASKS[index % len(ASKS)]
        return ask, answer(client, ask)

    with ThreadPoolExecutor(CLIENTS) as pool:
        together = list(pool.map(one, range(CLIENTS)))
    assert [(ask, alone[ask]) for ask, _ in together] == together


def test_a_killed_engine_is_told_to_everybody_and_the_next_request_works(
    server: tuple[openai.OpenAI, psutil.Process],
) -> None:
    client, process = server
    expected = answer(client, ASKS[0])
    (engine,) = process.children()
    streaming = Barrier(5)

    def one(_: int) -> str:
        stream = client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "Count to a million."}],
            max_tokens=3000,
            stream=True,
            extra_body={"temperature": 1.0, "seed": 1},
        )
        next(iter(stream))
        streaming.wait()
        with pytest.raises(openai.APIError) as failure:
            for _ in stream:
                pass
        return str(failure.value)

    with ThreadPoolExecutor(4) as pool:
        failures = pool.map(one, range(4))
        streaming.wait()
        engine.send_signal(signal.SIGKILL)
        assert all("engine" in failure for failure in failures)
    assert answer(client, ASKS[0]) == expected
