"""Decode measurements count the right tokens, and records keep what they need."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench.decode import Point, decode_once, decode_prompts, measure, measure_peer
from bench.pipelines import InjectedDrafts
from bench.prefill import measure as measure_prefill
from bench.records import Measurement, as_record, circumstances, newest, save
from engine.engine import EngineOptions
from engine.pipeline import Checkpoint
from tests.engine.toy_pipeline import VOCAB, ToyPipeline
from tests.machines import SMALL_MODEL, machine


class BenchPipeline(ToyPipeline):
    """With a draft layer that may be left out, and slots that may pretend to hold more."""

    def pause_drafts(self, paused: bool) -> None:
        self.can_draft = not paused

    def save(self, slot: int) -> Checkpoint:
        return Checkpoint(self._seats[slot].length, None)

    def restore(self, slot: int, checkpoint: Checkpoint) -> None:
        seat = self._seats[slot]
        seat.cells = [0] * checkpoint.length
        seat.state, seat.length, seat.next_token = 0, checkpoint.length, None


def _encode(text: str) -> list[int]:
    return [byte % VOCAB for byte in text.encode()]


OPTIONS = EngineOptions(chunk=32, spec=4, eos_ids=frozenset(range(VOCAB)))


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("spec", [1, 4])
def test_every_stream_writes_all_its_tokens(streams: int, spec: int) -> None:
    """End tokens do not end a measurement, and the tokens of the first windows are not timed."""
    pipeline = ToyPipeline(slots=3, max_context=200)
    options = EngineOptions(chunk=32, spec=spec)
    sample = decode_once(pipeline, options, decode_prompts(_encode, streams), 40)
    # A stream that got its first token early wrote some while the others still read.
    assert sample.tokens >= streams * 25
    assert sample.tokens <= streams * 39
    assert sample.seconds > 0
    assert (sample.offered > 0) == (spec > 1)
    assert sample.accepted <= sample.offered


@pytest.mark.parametrize("streams", [1, 2, 8, 64, 200])
def test_no_two_prompts_are_alike(streams: int) -> None:
    """Else their rows would choose the same experts, and measure as fewer rows."""
    prompts = decode_prompts(_encode, streams)
    assert len(prompts) == len(set(prompts)) == streams
    assert all(len(prompt) == 64 for prompt in prompts)


@pytest.mark.parametrize(
    ("point", "metric"),
    [
        (Point(1), "decode.streams1.tok_s"),
        (Point(3, 100), "decode.streams3.depth100.tok_s"),
        (Point(2, drafts=True), "decode.streams2.drafts.tok_s"),
        (Point(2, 100, 0.8), "decode.streams2.depth100.accept80.tok_s"),
    ],
)
def test_points_are_named_and_measured(point: Point, metric: str) -> None:
    pipeline = BenchPipeline(slots=3, max_context=200)
    (found,) = measure(
        pipeline,
        _encode,
        OPTIONS,
        [point],
        tokens=8,
        repeat=2,
        progress=lambda _: None,
        floor=lambda slots, rows, depth: 1e-6 * rows,
    )
    assert found.metric == metric
    assert len(found.samples) == 2
    assert found.unit == "tok/s"
    assert (found.details["drafts_offered"] > 0) == (point.drafts is not False)
    assert found.details["floor_tok_s"] > 0
    assert found.details["depth"] == point.depth


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0, 0), (0.5, 0.2, 0.75), (1.0, 1, 1)])
def test_injected_drafts_are_right_as_often_as_asked(share: float, low: float, high: float) -> None:
    """What is written stays the same: drafts change no token."""
    pipeline = BenchPipeline(slots=2, max_context=400, accuracy=0.0)
    prompts = decode_prompts(_encode, 2)
    plain = decode_once(pipeline, replace(OPTIONS, spec=1), prompts, 120)
    known = {slot: prompts[slot] + text for slot, text in enumerate(plain.written)}
    found = decode_once(InjectedDrafts(pipeline, known, share), OPTIONS, prompts, 120)
    assert found.written == plain.written
    # A draft behind a wrong one is wrong, so that of three fewer are kept than are right.
    assert low <= found.accepted / found.offered <= high
    assert found.windows <= plain.windows


def test_a_slot_may_pretend_to_be_long() -> None:
    pipeline = BenchPipeline(slots=2, max_context=400)
    prompts = decode_prompts(_encode, 2, 300)
    assert all(len(prompt) == 300 for prompt in prompts)
    found = decode_once(pipeline, OPTIONS, prompts, 8, read=250)
    assert found.tokens
    starts = {span.start for window in pipeline.windows for span in window.spans}
    assert min(starts) == 250


def test_prompts_are_timed() -> None:
    pipeline = BenchPipeline(slots=1, max_context=400)
    found = list(
        measure_prefill(pipeline, _encode, OPTIONS, [10, 70], repeat=2, progress=lambda _: None)
    )
    assert [one.metric for one in found] == ["prefill.10.tok_s", "prefill.70.tok_s"]
    assert all(one.value > 0 for one in found)
    assert pipeline.can_draft is False


def test_llamacpp_is_measured_on_the_same_file() -> None:
    (found,) = measure_peer(
        SMALL_MODEL, lambda _: list(range(10, 30)), tokens=4, threads=1, repeat=1
    )
    assert found.metric == "decode.streams1.llamacpp.tok_s"
    assert math.isfinite(found.value)
    assert found.value > 0


@pytest.mark.parametrize(
    ("samples", "median"), [((3.0,), 3.0), ((9.0, 1.0, 2.0), 2.0), ((4.0, 1.0), 2.5)]
)
def test_the_value_is_the_median(samples: tuple[float, ...], median: float) -> None:
    assert Measurement(metric="x", unit="s", samples=samples, details={}).value == median


def test_records_come_back_newest_first(tmp_path: Path) -> None:
    where = circumstances(["strata", "bench", "a b"], machine(), "m.gguf", {"slots": 1})
    assert where.command == "strata bench 'a b'"
    assert where.commit
    for value in (1.0, 2.0):
        one = Measurement(metric="x.tok_s", unit="tok/s", samples=(value,), details={"streams": 1})
        path = save("x", [as_record(one, where)], tmp_path)
    assert len(path.read_text().splitlines()) == 2
    assert newest("x", "m.gguf", folder=tmp_path)["x.tok_s"]["value"] == 2.0
    assert newest("x", "other.gguf", folder=tmp_path) == {}
    save("x", [as_record(one, replace(where, gpu="a card"))], tmp_path)
    assert newest("x", "m.gguf", "a card", folder=tmp_path)["x.tok_s"]["gpu"] == "a card"
    assert newest("x", "m.gguf", folder=tmp_path)["x.tok_s"]["gpu"] is None
    record = json.loads(path.read_text().splitlines()[0])
    assert {"metric", "value", "unit", "model", "gpu", "commit", "date", "command"} <= set(record)
    assert record["machine"]["cores"] == 2
    assert record["versions"]["python"]
    assert newest("none", "m.gguf", folder=tmp_path) == {}
