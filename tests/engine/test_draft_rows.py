"""How many drafts each slot gets: a rule over measurements."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoints import Saves
from engine.config import Decision, RunConfig
from engine.draft_rows import (
    ACCEPTANCE,
    BELIEF,
    FIRST,
    PROBE_WINDOWS,
    ROW_COST,
    DraftRows,
    WindowTimes,
)
from engine.engine import Engine, EngineOptions
from engine.errors import ConfigError
from engine.flags import parse_engine_args
from engine.request import Request
from engine.resolve import resolve
from engine.slots import Run
from tests.engine.engine_driver import run as run_all
from tests.engine.toy_pipeline import ToyPipeline
from tests.machines import flash_next_sizes, machine


def conversation(accepted: int = 0, judged: int = 0) -> Run:
    one = Run(Request(id="r", tokens=(1,), max_new=9), 1, 0, Saves())
    one.accepted, one.judged = accepted, judged
    return one


def rule(always: bool | None = None, most: int = 3, rows: int | None = None) -> DraftRows:
    return DraftRows(most, rows, always)


def timed(rows: DraftRows, times: dict[int, float]) -> DraftRows:
    for count, seconds in times.items():
        for _ in range(FIRST):
            rows.times.add(count, seconds)
    return rows


FREE = dict.fromkeys(range(1, 65), 1.0)
DEAR = {n: float(n) for n in range(1, 65)}


@pytest.mark.parametrize("always", [None, True, False])
def test_a_lone_conversation_gets_all_there_are(always: bool | None) -> None:
    rows = timed(rule(always, most=7), DEAR)
    assert rows.counts([conversation(0, 1000)]) == [7]
    assert timed(rule(always, most=7, rows=4), DEAR).counts([conversation()]) == [3]


def test_rows_that_cost_nothing_are_all_used_and_rows_that_cost_their_share_are_not() -> None:
    runs = [conversation(60, 100) for _ in range(4)]
    assert timed(rule(), FREE).counts(runs) == [3] * 4
    assert timed(rule(), DEAR).counts(runs) == [0] * 4


def test_who_drafts_better_gets_more() -> None:
    steps = {n: 1 + 0.1 * (n - 1) for n in range(1, 65)}
    good, bad = conversation(95, 100), conversation(5, 100)
    counts = timed(rule(), steps).counts([bad, good, bad])
    assert counts == [0, 3, 0]


def test_drafts_fill_a_step_of_the_cost() -> None:
    """Windows of up to 8 rows take one time, as kernels with tiles of 8 rows make it."""
    tiles = {n: 1.0 if n <= 8 else 2.0 for n in range(1, 33)}
    assert sum(timed(rule(), tiles).counts([conversation(50, 100)] * 4)) == 4
    assert sum(timed(rule(), tiles).counts([conversation(50, 100)] * 8)) == 0


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=4),
    st.lists(st.floats(0.01, 5), min_size=16, max_size=16),
    st.integers(1, 12),
)
def test_no_other_counts_give_more_tokens_a_second(
    judged: list[tuple[int, int]], steps: list[float], limit: int
) -> None:
    runs = [conversation(right, right + wrong) for right, wrong in judged]
    rows = timed(rule(rows=len(runs) + limit), {n + 1: sum(steps[: n + 1]) for n in range(16)})
    rates = [(run.accepted + BELIEF * ACCEPTANCE) / (run.judged + BELIEF) for run in runs]

    def speed(counts: tuple[int, ...]) -> float:
        tokens = sum(
            1 + sum(rate**depth for depth in range(1, count + 1))
            for rate, count in zip(rates, counts, strict=True)
        )
        return tokens / rows.times.of(len(runs) + sum(counts))

    every = (c for c in product(range(4), repeat=len(runs)) if sum(c) <= limit)
    assert speed(tuple(rows.counts(runs))) == pytest.approx(max(map(speed, every)))


def test_what_was_asked_for_is_done() -> None:
    runs = [conversation(0, 100) for _ in range(4)]
    assert timed(rule(True), DEAR).counts(runs) == [3] * 4
    assert timed(rule(True, rows=8), DEAR).counts(runs) == [1] * 4
    assert timed(rule(False), FREE).counts([conversation(9, 9)] * 2) == [0, 0]
    assert rule(most=0).counts(runs) == [0] * 4
    assert rule().counts([]) == []


def test_now_and_then_all_draft_so_that_acceptance_stays_known() -> None:
    rows = timed(rule(), DEAR)
    counts = [rows.counts([conversation(0, 100)] * 2) for _ in range(2 * PROBE_WINDOWS)]
    assert counts.count([1, 1]) == 2
    assert counts.count([0, 0]) == len(counts) - 2


def test_a_draft_behind_a_wrong_one_is_not_judged() -> None:
    rows, one = rule(), conversation()
    rows.judged(one, 3, 1)
    assert one.judged == 2
    rows.judged(one, 3, 3)
    assert one.judged == 5


def test_all_conversations_teach_what_a_new_one_is_expected_to_do() -> None:
    steps = {n: 1 + 0.3 * (n - 1) for n in range(1, 65)}
    rows = timed(rule(), steps)
    new = [conversation(), conversation()]
    before = sum(rows.counts(new))
    for _ in range(50):
        rows.judged(conversation(), 3, 0)
    assert sum(rows.counts(new)) == 0 < before


def test_times_between_and_beyond_what_was_timed() -> None:
    times = WindowTimes()
    assert times.of(5) / times.of(1) == 1 + 4 * ROW_COST
    for _ in range(FIRST):
        times.add(2, 1.0)
    assert times.of(2) == 1.0 < times.of(3)
    for _ in range(FIRST):
        times.add(6, 3.0)
    assert [times.of(n) for n in (1, 2, 4, 6, 8)] == [0.5, 1.0, 2.0, 3.0, 4.0]


def test_one_slow_window_does_not_spoil_a_time() -> None:
    times = WindowTimes()
    for seconds in (9.0, 1.0, 1.1):
        times.add(4, seconds)
    assert times.of(4) == 1.0, "the first one compiled its kernels"
    times.add(4, 100.0)
    assert times.of(4) < 1.2
    for _ in range(60):
        times.add(4, 2.0)
    assert times.of(4) == pytest.approx(2.0, rel=0.01), "what stays slow is believed"


@given(st.lists(st.tuples(st.integers(1, 20), st.floats(1e-4, 10)), max_size=40))
def test_times_never_fall_with_rows(windows: list[tuple[int, float]]) -> None:
    times = WindowTimes()
    for rows, seconds in windows:
        for _ in range(FIRST):
            times.add(rows, seconds)
    found = [times.of(rows) for rows in range(1, 40)]
    assert found[0] > 0
    assert all(b >= a * (1 - 1e-9) for a, b in pairwise(found))


def test_an_engine_gives_up_drafts_that_are_never_right(monkeypatch: pytest.MonkeyPatch) -> None:
    add = WindowTimes.add
    monkeypatch.setattr(WindowTimes, "add", lambda self, rows, _: add(self, rows, float(rows)))
    pipeline = ToyPipeline(slots=3, max_context=400, accuracy=0.0)
    asks = (Request(id=name, tokens=(1, 2), max_new=200) for name in "abc")
    run_all(Engine(pipeline, EngineOptions(spec=4)), *asks)
    drafts = [sum(span.drafts for span in window.spans) for window in pipeline.windows]
    assert sum(drafts[:10]) > 0
    assert sum(drafts[-PROBE_WINDOWS:]) <= 3, "only when they are tried again"


def test_an_engine_times_windows_of_answers_only() -> None:
    engine = Engine(ToyPipeline(slots=2, max_context=400), EngineOptions(spec=1, chunk=8))
    run_all(engine, Request(id="a", tokens=(1,) * 100, max_new=40))
    assert list(engine._draft_rows.times._first) == [1]


def decision(run: RunConfig) -> Decision:
    _, decisions = resolve(run, flash_next_sizes(), machine(free_gb=60))
    return next(one for one in decisions if one.setting == "batch_mtp")


def test_the_plan_says_who_drafts_and_why() -> None:
    assert decision(RunConfig()).value == "measured"
    assert "most tokens a second" in decision(RunConfig()).reason
    for asked in ("on", "off"):
        said = decision(RunConfig(batch_mtp=asked))
        assert (said.asked, said.value, said.changed) == (asked, asked, False)
        assert said.reason.startswith("as asked")
    none = decision(RunConfig(batch_mtp="on", spec=1))
    assert (none.value, none.reason, none.changed) == ("off", "no drafts are made", True)
    assert decision(RunConfig(batch_mtp="on", slots=1)).changed


def test_the_flag_needs_no_value() -> None:
    assert parse_engine_args(["--batch-mtp", "--slots", "2"]).batch_mtp == "on"
    assert parse_engine_args(["--batch-mtp=0"]).batch_mtp == "off"
    assert parse_engine_args(["--batch-mtp=measured"]).batch_mtp == "measured"
    with pytest.raises(ConfigError, match="'2' is not nothing or =1"):
        parse_engine_args(["--batch-mtp=2"])
