"""What windows carry: every writer in every window, prompt rows shared, nobody starved."""

from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    engine, pipeline = engine_of(3, 8)
    engine.submit(ask("a", 200))
    engine.step()
    engine.submit(ask("b", 100))
    engine.submit(ask("c", 4))
    events = engine.step()
    assert rows_of(pipeline.windows[-1]) == {0: 4, 2: 4}
    assert [event.id for event in events if isinstance(event, Produced)] == ["c"]


def test_what_nobody_else_needs_goes_to_the_first() -> None:
    engine, pipeline = engine_of(2, 8)
    engine.submit(ask("a", 50))
    engine.submit(ask("b", 3))
    engine.step()
    assert rows_of(pipeline.windows[-1]) == {0: 5, 1: 3}


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
    assert windows <= -(-length // half) + 1
    assert all(sum(len(s.tokens) for s in w.spans if len(s.tokens) > 1) <= chunk
               for w in pipeline.windows)  # fmt: skip


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
        engine = Engine(pipeline, EngineOptions(spec=4, window_rows=window_rows))
        run(engine, ask("a", 1, max_new=20), ask("b", 1, max_new=20))
        most = max(len(span.tokens) for window in pipeline.windows for span in window.spans)
        assert most == expected
