"""What windows carry: every writer in every window, prompt rows shared, nobody starved."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import scheduler
from engine.engine import Engine, EngineOptions
from engine.request import Produced, PromptRead, Request
from engine.window import Window
from tests.engine.engine_driver import run
from tests.engine.toy_pipeline import ToyPipeline


def ask(name: str, length: int, max_new: int = 1) -> Request:
    tokens = tuple((7 * ord(name) + i * i) % 50 for i in range(length))
    return Request(id=name, tokens=tokens, max_new=max_new)


def engine_of(slots: int, chunk: int, **options: int) -> tuple[Engine, ToyPipeline]:
    pipeline = ToyPipeline(slots=slots, max_context=400)
    return Engine(pipeline, EngineOptions(chunk=chunk, checkpoints=0, **options)), pipeline


def rows_of(window: Window) -> dict[int, int]:
    return {span.slot: len(span.tokens) for span in window.spans}


def test_an_idle_engine_runs_no_window() -> None:
    engine, pipeline = engine_of(2, 8)
    assert engine.step() == []
    assert pipeline.windows == []


def test_a_prompt_is_read_in_chunks_and_only_its_last_row_yields_logits() -> None:
    engine, pipeline = engine_of(1, 8)
    run(engine, ask("a", 19))
    spans = [window.spans[0] for window in pipeline.windows]
    assert [(s.start, len(s.tokens), s.certain, s.logits_from) for s in spans] == [
        (0, 8, 8, 8),
        (8, 8, 8, 8),
        (16, 3, 3, 2),
    ]


def test_writers_go_on_beside_a_prompt() -> None:
    engine, pipeline = engine_of(2, 4)
    engine.submit(ask("a", 2, max_new=30))
    engine.step()
    engine.submit(ask("b", 16, max_new=2))
    for _ in range(4):
        engine.step()
    assert [rows_of(window) for window in pipeline.windows[1:]] == [{0: 1, 1: 4}] * 4


def test_windows_in_which_others_write_have_fewer_prompt_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "MOST_BESIDE", 3)
    engine, pipeline = engine_of(2, 8)
    engine.submit(ask("a", 20, max_new=2))
    for _ in range(3):
        engine.step()
    engine.submit(ask("b", 12, max_new=1))
    engine.step()
    engine.step()
    assert [rows_of(window) for window in pipeline.windows] == [
        *({0: 8}, {0: 8}, {0: 4}),
        {0: 1, 1: 3},  # "a" writes its last token
        {1: 8},
    ]


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    engine, pipeline = engine_of(3, 8)
    engine.submit(ask("a", 200))
    engine.step()
    engine.submit(ask("b", 100))
    engine.submit(ask("c", 4))
    events = engine.step()
    assert rows_of(pipeline.windows[-1]) == {2: 4}
    assert [event.id for event in events if isinstance(event, Produced)] == ["c"]
    engine.step()
    assert rows_of(pipeline.windows[-1]) == {0: 4, 1: 4}


def test_a_long_prompt_gives_way_twice_and_then_keeps_its_half() -> None:
    engine, pipeline = engine_of(2, 8)
    engine.submit(ask("a", 100))
    for name in "bcd":
        engine.submit(ask(name, 20))
        for _ in range(3):
            engine.step()
    windows = [rows_of(window) for window in pipeline.windows]
    assert windows[:6] == [{1: 8}, {1: 8}, {1: 4}] * 2
    assert windows[6:] == [{0: 4, 1: 4}] * 3


def test_a_prompt_of_half_the_length_does_not_pass() -> None:
    for length, rows in ((50, {0: 4, 1: 4}), (49, {1: 8})):
        engine, pipeline = engine_of(2, 8)
        engine.submit(ask("a", 100))
        engine.submit(ask("b", length))
        engine.step()
        assert rows_of(pipeline.windows[-1]) == rows


def test_what_one_window_holds_is_read_together() -> None:
    engine, pipeline = engine_of(2, 16)
    engine.submit(ask("a", 13))
    engine.submit(ask("b", 3))
    engine.step()
    assert rows_of(pipeline.windows[-1]) == {0: 13, 1: 3}


def test_pieces_of_a_read_nobody_writes_beside() -> None:
    def first_rows_of_b(yield_chunks: int, *, writes: bool) -> int:
        engine, pipeline = engine_of(3, 8, yield_chunks=yield_chunks)
        if writes:
            engine.submit(ask("w", 1, max_new=40))
        engine.submit(ask("a", 100))
        engine.step()
        engine.submit(ask("b", 20))
        for _ in range(4):
            engine.step()
        shares = [{k: n for k, n in rows_of(w).items() if n > 1} for w in pipeline.windows]
        return next((i for i, rows in enumerate(shares) if len(rows) == 1 and 8 in rows.values()
                     and i > 0), 0)  # fmt: skip

    assert first_rows_of_b(1, writes=False) == 1
    assert first_rows_of_b(3, writes=False) == 3
    assert first_rows_of_b(0, writes=False) == 0
    assert first_rows_of_b(3, writes=True) == 1


def test_what_nobody_else_needs_goes_to_the_first() -> None:
    engine, pipeline = engine_of(2, 8)
    engine.submit(ask("a", 12))
    engine.submit(ask("b", 6))
    engine.step()
    engine.step()
    assert [rows_of(w) for w in pipeline.windows] == [{0: 4, 1: 4}, {0: 6, 1: 2}]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(2, 120), st.lists(st.integers(1, 9), min_size=1))
def test_a_long_prompt_moves_whatever_arrives(chunk: int, length: int, others: list[int]) -> None:
    engine, pipeline = engine_of(3, chunk)
    engine.submit(ask("a", length))
    windows, names = 0, iter(range(10**6))
    while any(slot.run and slot.run.request.id == "a" for slot in engine.slots):
        for slot in engine.slots:
            if slot.run is None:
                count = others[windows % len(others)]
                engine.submit(Request(id=f"s{next(names)}", tokens=(51,) * count, max_new=1))
        engine.step()
        windows += 1
    half = -(-chunk // 2)
    passing = [-(-count // chunk) for count in sorted(others)[-1:]] * 2
    assert windows <= -(-length // half) + 1 + sum(passing)
    assert all(sum(len(s.tokens) for s in w.spans if len(s.tokens) > 1) <= chunk
               for w in pipeline.windows)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    chunk=st.integers(1, 16),
    yield_chunks=st.integers(0, 3),
    arrivals=st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 60), st.integers(1, 6)), min_size=1, max_size=30
    ),
)
def test_nobody_waits_behind_more_than_a_bounded_amount_of_later_work(
    chunk: int, yield_chunks: int, arrivals: list[tuple[int, int, int]]
) -> None:
    """While it is the first that reads, a prompt sees less than twice its length of later rows."""
    engine, pipeline = engine_of(4, chunk, yield_chunks=yield_chunks)
    waiting = [Request(id=str(i), tokens=(i % 50,) * length, max_new=new)
               for i, (_, length, new) in enumerate(arrivals)]  # fmt: skip
    pauses = [pause for pause, _, _ in arrivals]
    later: dict[str, int] = {}
    while waiting or engine.busy:
        while waiting and pauses[0] <= 0 and any(slot.run is None for slot in engine.slots):
            engine.submit(waiting.pop(0))
            pauses.pop(0)
        pauses[:1] = [pause - 1 for pause in pauses[:1]]
        runs = {slot.index: (slot.run, slot.missing) for slot in engine.slots if slot.run}
        reading = sorted((run.arrival, index) for index, (run, n) in runs.items() if n > 1)
        done = len(pipeline.windows)
        engine.step()
        for window in pipeline.windows[done:]:
            if reading:
                run, missing = runs[reading[0][1]]
                rows = {i: n for i, n in rows_of(window).items() if i in [j for _, j in reading]}
                mine = rows.pop(reading[0][1], 0)
                assert mine or run.gave_way
                if mine == missing:
                    continue  # It has all it needs: the rest of the window is free.
                extra = sum(rows.values()) - mine
                name = run.request.id
                later[name] = later.get(name, 0) + extra
                assert later[name] < len(run.request.tokens)


@settings(max_examples=40, deadline=None)
@given(
    chunk=st.integers(1, 16),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    max_new=st.integers(1, 12),
    spec=st.integers(1, 5),
)
def test_every_row_is_computed_once_and_every_request_ends(
    chunk: int, lengths: list[int], max_new: int, spec: int
) -> None:
    engine, pipeline = engine_of(4, chunk, spec=spec)
    asks = [ask("abcd"[i], length, max_new) for i, length in enumerate(lengths)]
    answers = run(engine, *asks)
    for slot, request in enumerate(asks):
        answer = answers[request.id]
        assert answer.end is not None
        assert answer.end.finish == "length"
        assert len(answer.tokens) == max_new == answer.end.generated
        spans = [s for w in pipeline.windows for s in w.spans if s.slot == slot]
        kept = sum(s.certain for s in spans) + answer.end.accepted
        assert kept == len(request.tokens) + max_new - 1 == answer.end.held
        assert sum(s.drafts for s in spans) == answer.end.offered


def test_progress_is_told_chunk_by_chunk() -> None:
    engine, _ = engine_of(1, 8)
    engine.submit(ask("a", 19))
    events = [event for _ in range(3) for event in engine.step()]
    assert [e.read for e in events if isinstance(e, PromptRead)] == [8, 16, 19]


def test_window_rows_limits_drafts_and_never_a_writers_own_row() -> None:
    for window_rows, expected in ((8, 4), (4, 2), (1, 1)):
        pipeline = ToyPipeline(slots=2, accuracy=1.0)
        engine = Engine(pipeline, EngineOptions(spec=4, window_rows=window_rows, slot_drafts=True))
        run(engine, ask("a", 1, max_new=20), ask("b", 1, max_new=20))
        most = max(len(span.tokens) for window in pipeline.windows for span in window.spans)
        assert most == expected
