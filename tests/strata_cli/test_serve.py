"""`strata setup` and `strata run` as a user starts them: the bundled model over HTTP."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from setup.models.bundled import bundled_model
from tests.strata_cli.commands import strata

ROOT = Path(__file__).parents[2]
QUESTION = "How do I read a file in Python?"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server that is ready, and its process."""
    folder = tmp_path_factory.mktemp("served")
    command = [sys.executable, "-m", "strata_cli"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "setup", "--yes", "-q"], cwd=folder, env=environment, check=True)
    assert [path.name for path in folder.iterdir()] == ["strata-tiny.json"]
    process = subprocess.Popen(
        [*command, "run", "--port", "0"],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    address = ""
    for line in process.stderr:
        address = address or "".join(re.findall(r"listening on (http://\S+)", line))
        if line.startswith("ready"):
            break
    yield address, process
    process.kill()
    process.wait()


def test_the_openai_client_gets_the_same_answer_as_the_command_line(
    served: tuple[str, subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    address, _ = served
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
    stream = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": QUESTION}], max_tokens=60, stream=True
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert sum(map(bool, pieces)) > 10, "it streams"
    words = ["run", "--model", str(bundled_model()), "--prompt", QUESTION, "--max-tokens", "60"]
    alone = strata(capsys, *words, "--json", "-q").document["text"]
    assert alone.strip()
    assert "".join(pieces) == alone


def test_status_serves_the_decisions(served: tuple[str, subprocess.Popen[str]]) -> None:
    status = httpx.get(f"{served[0]}/v1/status").json()
    decisions = {decision["setting"]: decision for decision in status["decisions"]}
    assert decisions["slots"]["value"] == 4
    assert status["concurrency"]["serving"] == 4
    assert all(decision["reason"] for decision in decisions.values())


def test_a_signal_ends_it_with_0(served: tuple[str, subprocess.Popen[str]]) -> None:
    """The last test: it stops the server."""
    _, process = served
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out == "", "stdout is for results"


def test_a_dead_parent_takes_the_engine_with_it(tmp_path: Path) -> None:
    """The server is killed while it serves; the pipe that both write to closes."""
    command = [sys.executable, "-m", "strata_cli", "run", "--model", str(bundled_model())]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*command, "--port", "0"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("ready"):
            break
    process.kill()
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
