"""Clients over HTTP: what is counted, what is told, and what two runs say."""

import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

import bench.records
from bench.client import PERCENTILES, connect, percentile
from bench.compare import compare, read_run
from bench.serve import Load, measure
from engine.errors import ConfigError
from tests.bench.test_early_close import Folded
from tests.engine.server.harness import Running, running
from tests.machines import SMALL_MODEL
from tests.strata_cli.commands import strata

LOAD = Load(clients=4, rounds=2, words=20, tokens=6, seed=3)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    command = (sys.executable, "-m", "tests.engine.toy_engine")
    with running(command=command, text=Folded(), api_keys=("secret-key",)) as run:
        yield run


def test_a_load_follows_from_its_seed_and_no_two_questions_begin_alike() -> None:
    prompts = [LOAD.prompt(number, client) for number in range(2) for client in range(4)]
    again = [
        Load(4, 2, 20, 6, 3).prompt(number, client) for number in (0, 1) for client in range(4)
    ]
    assert prompts == again
    assert len({prompt[:8] for prompt in prompts}) == 8
    assert {len(prompt.split()) for prompt in prompts} == {20}
    assert prompts[0] != Load(4, 2, 20, 6, 4).prompt(0, 0)


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, share) for share in (1, 50, 90, 99, 100)] == [1, 50, 90, 99, 100]
    assert percentile([7.0], 50) == percentile([7.0], 99) == 7


def test_clients_of_a_server(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.watch.gpu_share", lambda: 0.5)
    monkeypatch.setattr("bench.serve.GPU_EVERY_S", 0.0001)
    told: list[str] = []
    with connect(f"{server.url}/v1/", "secret-key") as http:
        found = {one.metric: one for one in measure(http, "any", [LOAD], told.append)}
    assert len(told) == LOAD.rounds
    assert next(iter(found)) == "serve.clients4.tok_s"
    assert len(found) == 1 + 2 * len(PERCENTILES) + 1
    assert found["serve.clients4.gpu_share"].samples == (0.5, 0.5)
    streams = next(iter(found.values())).details["timeline"]["streams"]
    assert [sum(counts) > 0 for counts in streams] == [True] * LOAD.clients
    for one in found.values():
        assert len(one.samples) == LOAD.rounds
        assert min(one.samples) >= 0
        assert one.details["requests"] == 8
        assert 8 <= one.details["answer_tokens"] <= 8 * 6
        assert one.details["prompt_tokens"] > 8
    for kind in ("ttft", "tpot"):
        values = [found[f"serve.clients4.{kind}_p{share}_ms"].value for share in PERCENTILES]
        assert all(a <= b for a, b in pairwise(values))


def stream(*events: object) -> httpx.Response:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return httpx.Response(200, text=": comment\n\n" + "".join(lines) + "data: [DONE]\n\n")


def test_pieces_are_counted_where_the_server_counts_no_tokens() -> None:
    role, reason, text = (
        {"choices": [{"delta": delta}]}
        for delta in ({"role": "assistant", "content": ""}, {"reasoning": "a"}, {"content": "b"})
    )
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    transport = httpx.MockTransport(lambda request: stream(role, reason, text, text, end))
    with httpx.Client(transport=transport, base_url="http://x") as http:
        found = next(measure(http, "m", [Load(1, 1, 2, 9, 0)], lambda sentence: None))
    assert found.details["answer_tokens"] == 3
    assert found.details["prompt_tokens"] == 0


def test_faults_are_told(server: Running) -> None:
    with connect(server.url, None) as http, pytest.raises(ConfigError, match="401"):
        list(measure(http, "m", [LOAD], print))
    transport = httpx.MockTransport(lambda request: stream({"error": {"message": "it died"}}))
    with (
        httpx.Client(transport=transport, base_url="http://x") as http,
        pytest.raises(ConfigError, match="it died"),
    ):
        list(measure(http, "m", [LOAD], print))
    with connect("http://127.0.0.1:9", None) as http, pytest.raises(ConfigError) as caught:
        list(measure(http, "m", [LOAD], print))
    assert "running" in caught.value.hint


def test_the_command_saves_records_without_the_key_and_compares_them(
    server: Running,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(bench.records.save, "__defaults__", (tmp_path,))
    words = ["bench", "serve", "--url", server.url, "--api-key", "secret-key", "--clients", "1,2"]
    words += ["--tokens", "4", "--words", "5", "--rounds", "2", "--save", "--json", "-q"]
    monkeypatch.setattr(sys, "argv", ["strata", *words])
    ran = strata(capsys, *words)
    assert ran.code == 0, ran.err
    saved = tmp_path / "serve.jsonl"
    lines = [json.loads(line) for line in saved.read_text().splitlines()]
    assert lines == ran.document["records"]
    assert {line["gpu"] for line in lines} == {"unknown"}
    assert {line["config"]["url"] for line in lines} == {server.url}
    assert "secret-key" not in saved.read_text()
    (tmp_path / "run.json").write_text(ran.out)
    ran = strata(capsys, "bench", "compare", str(saved), str(tmp_path / "run.json"), "--json")
    assert ran.code == 0, ran.err
    assert [change["ratio"] for change in ran.document["changes"]] == [1.0] * len(lines)
    ran = strata(capsys, "bench", "serve", "--api-key", "k")
    assert "--url" in ran.err


def test_two_runs() -> None:
    def record(unit: str, *samples: float) -> dict[str, object]:
        return {"unit": unit, "samples": samples}

    before = {"a": record("tok/s", 10, 11, 12), "b": record("ms", 5, 5, 5), "c": record("ms", 1)}
    after = {"a": record("tok/s", 20, 22, 11), "b": record("ms", 4, 6, 5, 1), "d": record("ms", 1)}
    rate, time = compare(before, after)
    assert (rate.before, rate.after, rate.faster, rate.pairs) == (11, 20, 2, 3)
    assert rate.low <= rate.ratio <= rate.high
    assert rate.ratio == pytest.approx(20 / 11)
    assert (time.ratio, time.faster, time.pairs) == (0.9, 1, 3)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"records": 3}', "x", '{"metric": 1}\n{"a"'])
def test_a_file_without_records(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match="no records"):
        read_run(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_run(tmp_path / "b")


def test_a_server_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--clients", "2", "--rounds", "1", "--words", "4", "--tokens", "3", "--slots", "2"]
    ran = strata(capsys, "bench", "serve", "--model", str(SMALL_MODEL), *words, "--json", "-q")
    assert ran.code == 0, ran.err
    first = ran.document["records"][0]
    assert first["metric"] == "serve.clients2.tok_s"
    assert first["value"] > 0
    assert first["config"]["slots"] == 2
