"""Two arms in turn, each on a fresh server."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.config import EngineConfig
from strata_cli import own_server
from tests.bench.test_early_close import Folded
from tests.engine.server.harness import running
from tests.machines import SMALL_MODEL
from tests.strata_cli.commands import strata


def test_arms_take_turns_on_fresh_servers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    @contextmanager
    def toy(path: Path | None, config: EngineConfig) -> Iterator[tuple[str, str]]:
        started.append(config.window_rows)
        command = (sys.executable, "-m", "tests.engine.toy_engine")
        with running(command=command, text=Folded(), api_keys=("key",)) as run:
            yield run.url, "key"

    monkeypatch.setattr(own_server, "own_server", toy)
    words = ["bench", "pairs", "--model", str(SMALL_MODEL), "--after", "--window-rows 5"]
    words += ["--before", "--window-rows 9", "--pairs", "2", "--clients", "1,2", "--words", "4"]
    ran = strata(capsys, *words, "--slots", "2", "--tokens", "3", "--json", "-q")
    assert ran.code == 0, ran.err
    assert started == [9, 5, 5, 9]
    changes = {change["metric"]: change for change in ran.document["changes"]}
    assert {"serve.clients1.tok_s", "serve.clients2.ttft_p50_ms"} <= changes.keys()
    for change in changes.values():
        assert change["pairs"] == 2
        assert 0 <= change["faster"] <= 2
        assert change["low"] <= change["ratio"] <= change["high"]
    assert ran.document["arms"] == {"before": "--window-rows 9", "after": "--window-rows 5"}


def test_arms_that_are_the_same_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    ran = strata(capsys, "bench", "pairs", "--before", "--spec 1", "--after", " --spec  1")
    assert ran.code == 1
    assert "the same" in ran.err
