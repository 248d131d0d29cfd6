"""A random load: what it counts, and that it notices lost requests and other answers."""

import itertools
import json
import random
import sys
from collections.abc import Iterator

import httpx
import pytest

from bench.client import connect
from bench.soak import KINDS, Plan, soak
from tests.bench.test_early_close import Folded
from tests.engine.server.harness import Running, running
from tests.strata_cli.commands import strata

PLAN = Plan(clients=4, seconds=2.0, long=128, answer=8, turns=3, again=12, seed=5)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    command = (sys.executable, "-m", "tests.engine.toy_engine")
    with running(command=command, text=Folded()) as run:
        yield run


def test_an_exact_server_has_no_faults(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.watch.gpu_share", lambda: 0.5)
    with connect(server.url, None) as http:
        found, faults = soak(http, "any", PLAN, lambda sentence: None)
    values = {one.metric: one.value for one in found}
    assert faults == []
    assert values["soak.faults"] == values["soak.different"] == 0
    kinds = found[0].details["requests"]
    assert set(kinds) == set(KINDS)
    assert values["soak.answers"] == sum(kinds.values())
    assert values["soak.later_turns"] > 0
    assert values["soak.gpu_share"] == 0.5
    assert found[0].details["asked_again"] == 12


def answers(text: str) -> httpx.Response:
    events = [
        {"choices": [{"delta": {"content": text}}]},
        {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 1}},
    ]
    lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return httpx.Response(200, text=lines + "data: [DONE]\n\n")


def test_answers_that_change_are_found() -> None:
    draw = random.Random(1)
    transport = httpx.MockTransport(lambda request: answers(f"{draw.getrandbits(64):x}"))
    with httpx.Client(transport=transport, base_url="http://x") as http:
        found, faults = soak(http, "m", PLAN, lambda sentence: None)
    different = next(one.value for one in found if one.metric == "soak.different")
    assert different == len(faults) == PLAN.again
    assert "alone" in faults[0]


def test_requests_that_fail_are_found() -> None:
    requests = itertools.count()

    def sometimes(request: httpx.Request) -> httpx.Response:
        return httpx.Response(503, text="busy") if next(requests) % 3 == 1 else answers("a")

    plan = Plan(clients=2, seconds=1.0, long=128, answer=8, turns=3, again=0, seed=5)
    with httpx.Client(transport=httpx.MockTransport(sometimes), base_url="http://x") as http:
        found, faults = soak(http, "m", plan, lambda sentence: None)
    values = {one.metric: one.value for one in found}
    assert values["soak.faults"] == len(faults) > 0
    assert "503" in faults[0]


def test_counters_of_the_server_are_told_as_far_as_they_grew() -> None:
    asked = itertools.count()

    def server(request: httpx.Request) -> httpx.Response:
        if request.url.path != "/metrics":
            return answers("a")
        lines = "# TYPE strata:conversations_parked_total counter\n"
        return httpx.Response(200, text=f"{lines}strata:conversations_parked_total {next(asked)}\n")

    plan = Plan(clients=1, seconds=1.0, long=128, answer=8, turns=3, again=0, seed=5)
    with httpx.Client(transport=httpx.MockTransport(server), base_url="http://x") as http:
        found, _ = soak(http, "m", plan, lambda sentence: None)
    values = {one.metric: one.value for one in found}
    assert values["soak.conversations_parked"] == 1
    assert "soak.cache_hits" not in values


def test_the_command(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "soak", "--url", server.url, "--clients", "2", "--seconds", "1", "--again"]
    ran = strata(capsys, *words, "4", "--long", "64", "--tokens", "4", "--json", "-q")
    assert ran.code == 0, ran.err
    metrics = {record["metric"]: record for record in ran.document["records"]}
    assert metrics["soak.different"]["value"] == 0
    assert metrics["soak.answers"]["value"] > 0
