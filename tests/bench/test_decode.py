"""Decode measurements count the right tokens, and records keep what they need."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench.decode import decode_once, decode_prompts, measure, measure_peer
from bench.records import Measurement, as_record, circumstances, newest, save
from engine.engine import EngineOptions
from tests.engine.toy_pipeline import VOCAB, ToyPipeline
from tests.machines import SMALL_MODEL, machine


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


def test_prompts_are_the_workloads_in_turn() -> None:
    prompts = decode_prompts(_encode, 6)
    assert len(set(prompts)) == 4
    assert prompts[0] == prompts[4]
    assert all(0 < len(prompt) <= 64 for prompt in prompts)


@pytest.mark.parametrize(("spec", "suffix"), [(1, ""), (4, ".drafts")])
def test_names_of_measurements(spec: int, suffix: str) -> None:
    pipeline = ToyPipeline(slots=3, max_context=200)
    options = replace(OPTIONS, spec=spec)
    found = measure(
        pipeline, _encode, options, streams=[1, 3], tokens=8, repeat=2, progress=lambda _: None
    )
    assert [one.name for one in found] == [
        f"decode.streams1{suffix}.tok_s",
        f"decode.streams3{suffix}.tok_s",
    ]
    assert all(len(one.samples) == 2 and one.unit == "tok/s" for one in found)


def test_llamacpp_is_measured_on_the_same_file() -> None:
    (found,) = measure_peer(
        SMALL_MODEL, lambda _: list(range(10, 30)), tokens=4, threads=1, repeat=1
    )
    assert found.name == "decode.streams1.llamacpp.tok_s"
    assert math.isfinite(found.value)
    assert found.value > 0


@pytest.mark.parametrize(
    ("samples", "median"), [((3.0,), 3.0), ((9.0, 1.0, 2.0), 2.0), ((4.0, 1.0), 2.5)]
)
def test_the_value_is_the_median(samples: tuple[float, ...], median: float) -> None:
    assert Measurement(name="x", unit="s", samples=samples, details={}).value == median


def test_records_come_back_newest_first(tmp_path: Path) -> None:
    where = circumstances(["strata", "bench", "a b"], machine(), "m.gguf", {"slots": 1})
    assert where.command == "strata bench 'a b'"
    assert where.commit
    for value in (1.0, 2.0):
        one = Measurement(name="x.tok_s", unit="tok/s", samples=(value,), details={"streams": 1})
        path = save("x", [as_record(one, where)], tmp_path)
    assert len(path.read_text().splitlines()) == 2
    assert newest("x", tmp_path)["x.tok_s"]["value"] == 2.0
    record = json.loads(path.read_text().splitlines()[0])
    assert record["machine"]["cores"] == 2
    assert record["versions"]["python"]
    assert newest("none", tmp_path) == {}
