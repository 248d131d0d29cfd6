"""Clients that leave: an exact server passes, one that mixes answers up does not."""

import json
import sys
from collections.abc import Iterator

import httpx
import pytest

from bench.early_close import ROUNDS, early_close
from bench.texts import WORKLOADS
from engine.errors import ConfigError
from tests.engine.server.harness import HANG_GUARD_S, Running, running
from tests.engine.server.test_with_engine import ToyText
from tests.strata_cli.commands import strata


class Folded(ToyText):
    """Letters folded into the toy model's tokens."""

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        return [ord(letter) % 57 for letter in text[:120]]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    command = (sys.executable, "-m", "tests.engine.toy_engine")
    with running(command=command, text=Folded()) as run:
        yield run


def test_an_exact_server(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check-exactness", "--url", server.url, "--max-new", "60", "--json", "-q"]
    ran = strata(capsys, *words)
    assert ran.code == 0
    assert ran.document["equal"]
    assert ran.document["answers"] == ROUNDS * (len(WORKLOADS) + 1)
    assert ran.document["left"] == ROUNDS * len(WORKLOADS)
    server.until(lambda s: s.bridge.slots.busy == 0)
    assert server.http.get("/metrics").json()["totals"]["failed"] == 0
    ran = strata(capsys, "check-exactness", "--url", server.url, "--suite", "slots")
    assert "cannot be played over HTTP" in ran.err


def test_a_server_that_gives_another_s_tokens() -> None:
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        prompt = json.loads(request.content)["prompt"]
        asked.append(prompt)
        stale = asked[-2][:4] if len(asked) == 2 * len(WORKLOADS) + 2 else ""
        chunk = {"choices": [{"text": stale + prompt[:9]}]}
        return httpx.Response(200, text=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")

    with httpx.Client(transport=httpx.MockTransport(handle), base_url="http://x") as http:
        found = early_close(http, tokens=9)
    assert found.difference.startswith("at character 0")


def test_a_server_that_is_not_there_or_refuses() -> None:
    with running(api_keys=("k",)) as run:
        with (
            httpx.Client(base_url=run.url, timeout=HANG_GUARD_S) as http,
            pytest.raises(ConfigError, match="401"),
        ):
            early_close(http, tokens=5)
        url = run.url
    with httpx.Client(base_url=url) as http, pytest.raises(ConfigError, match="refused"):
        early_close(http, tokens=5)
