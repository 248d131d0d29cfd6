"""Prompts that join a server: what counts as a stop, and that every scenario plays."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.client import connect
from bench.join import SCENARIOS, Sizes, longest_stop_s, measure
from engine.errors import ConfigError
from tests.bench.test_early_close import Folded
from tests.engine.server.harness import Running, running
from tests.strata_cli.commands import strata

NEXT_TURN = [
    f"{name}_{kind}_tokens"
    for name in ("slot", "checkpoint", "behind_crowd")
    for kind in ("new", "fresh")
]
SIZES = Sizes(long=120, second=60, history=80, answer=256, streams=2, crowd=3)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    command = (sys.executable, "-m", "tests.engine.toy_engine")
    with running(command=command, text=Folded()) as run:
        yield run


@pytest.mark.parametrize(
    ("moments", "stop"),
    [
        ([0.0, 1.0, 2.0, 6.0, 7.0], 4.0),  # between two pieces
        ([0.0, 4.0, 5.0, 7.0], 3.0),  # before the first piece: since the window began
        ([0.0, 1.5, 9.0], 4.5),  # the next piece comes behind the window's end
        ([0.0, 1.5, 2.0], 0.5),  # the stream ended; that is no stop
        ([], 0.0),
    ],
)
def test_a_stop_is_a_time_without_a_piece_within_the_window(
    moments: list[float], stop: float
) -> None:
    assert longest_stop_s(moments, 1.0, 6.0) == stop


@given(st.lists(st.floats(0, 20), min_size=1).map(sorted), st.floats(1, 5), st.floats(6, 15))
def test_no_stop_is_longer_than_the_window(moments: list[float], begin: float, end: float) -> None:
    stop = longest_stop_s(moments, begin, end)
    assert 0 <= stop <= end - begin
    more = sorted([*moments, (begin + end) / 2])
    if moments[-1] >= end:
        assert longest_stop_s(more, begin, end) <= stop


def test_every_scenario_plays(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.watch.gpu_share", lambda: 0.5)
    monkeypatch.setattr("bench.join.GPU_EVERY_S", 0.0001)
    monkeypatch.setattr("bench.join.BEHIND_S", 0.0)
    monkeypatch.setattr("bench.join.QUESTION_AFTER_S", 0.0)
    monkeypatch.setattr("bench.join.JOINERS_APART_S", 0.0)
    told: list[str] = []
    with connect(server.url, None) as http:
        found = {
            one.metric: one
            for one in measure(
                http, "any", list(SCENARIOS), SIZES, repeat=2, seed=1, progress=told.append
            )
        }
    assert len(told) == 2 * len(SCENARIOS)
    for name in SCENARIOS:
        assert any(metric.startswith(f"join.{name}.") for metric in found)
    for metric, one in found.items():
        assert len(one.samples) == 2
        assert one.details["streams"] == 2
        if metric.endswith("_ttft_ms"):
            assert min(one.samples) > 0
    turns = {name: found[f"join.next_turn.{name}"].samples for name in NEXT_TURN}
    for name in ("slot", "checkpoint", "behind_crowd"):
        new, fresh = turns[f"{name}_new_tokens"], turns[f"{name}_fresh_tokens"]
        assert all(abs(a - b) <= 30 for a, b in zip(new, fresh, strict=True)), name
        assert min(new) > 0
    stop = found["join.two_joiners.longest_stop_s"]
    assert stop.unit == "s"
    assert len(stop.details["timeline"]["streams"]) == SIZES.streams
    assert [name for name, _, _ in stop.details["timeline"]["reads"]] == ["long", "second"]
    assert found["join.joiner.gpu_share"].value == 0.5


def test_a_scenario_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    ran = strata(capsys, "bench", "join", "--scenarios", "joiner,waltz")
    assert ran.code == 1
    assert "waltz" in ran.err
    assert "two_joiners" in ran.err


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with connect("http://127.0.0.1:9", None) as http, pytest.raises(ConfigError, match="127"):
        list(measure(http, "m", ["read_alone"], SIZES, repeat=1, seed=1, progress=print))
