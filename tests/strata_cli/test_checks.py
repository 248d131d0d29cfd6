"""`strata check-exactness` and `strata bench decode` on a small model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bench.records
from bench.suites import SUITES
from setup.models.bundled import bundled_model
from tests.machines import FIXTURES, SMALL_MODEL
from tests.strata_cli.commands import strata

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    "model", [bundled_model(), FIXTURES / "tiny-qwen35moe.gguf"], ids=lambda path: path.stem
)
def test_check_exactness_is_equal(capsys: Capture, model: Path) -> None:
    """The default set on the trained models: 4 slots, drafts, greedy and sampled."""
    ran = strata(capsys, "check-exactness", "--model", str(model), "--json", "-q")
    assert ran.code == 0, ran.out
    document = ran.document
    assert document["equal"]
    played = [suite.name for suite in SUITES if not suite.needs_experts]
    assert [suite["suite"] for suite in document["suites"]] == played
    assert not any(suite["difference"] for suite in document["suites"])
    assert document["left_out"] == {"residency": "all experts lie in one place"}
    assert document["rows"] > 1500
    assert ran.err == ""


def test_check_exactness_fails_when_no_text_counts(capsys: Capture) -> None:
    words = ["--model", str(SMALL_MODEL), "--suite", "slots", "--max-new", "8"]
    ran = strata(capsys, "check-exactness", *words)
    assert ran.code == 1
    assert "does not count" in ran.out
    assert "NOT proven" in ran.out


def test_bench_decode_records(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.records.save, "__defaults__", (tmp_path,))
    words = ["--model", str(SMALL_MODEL), "--streams", "1,2", "--tokens", "8", "--repeat", "2"]
    ran = strata(capsys, "bench", "decode", *words, "--no-peer", "--save", "--json")
    assert ran.code == 0
    records = ran.document["records"]
    assert [r["metric"] for r in records] == ["decode.streams1.tok_s", "decode.streams2.tok_s"]
    for record in records:
        assert record["unit"] == "tok/s"
        assert len(record["samples"]) == 2
        assert record["value"] > 0
        assert {"commit", "date", "command", "machine", "model", "config"} <= set(record)
    lines = (tmp_path / "decode.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == records
