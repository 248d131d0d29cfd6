"""Plots are really drawn: a picture that decodes and shows something, and text with its labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bench.picture
from bench.charts import Chart, Line, charts, of_last_run
from bench.picture import DPI, HEIGHT_INCHES, WIDTH_INCHES
from bench.terminal_plot import drawn
from bench.timeline import BINS, MOST_STREAMS, timeline
from tests.strata_cli.commands import strata


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """matplotlib keeps its list of fonts in the home folder."""
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))


def record(metric: str, value: float, **more: Any) -> dict[str, Any]:
    return {"metric": metric, "value": value, "unit": "tok/s", "samples": [value], **more}


STREAMS = [[0.1 * at for at in range(30)], [0.1 * at for at in (*range(10), *range(20, 30))]]
JOIN = record(
    "join.joiner.longest_stop_s",
    1.1,
    scenario="joiner",
    timeline=timeline(STREAMS, 0.0, 3.0, [("long", 0.5, 2.0)]),
)
SERVE = [
    *(record(f"serve.clients{n}.tok_s", 90.0 * n**0.5, clients=n) for n in (1, 4, 16)),
    *(
        record(f"serve.clients{n}.{kind}_p{share}_ms", n + share)
        for n in (1, 4, 16)
        for kind in ("ttft", "tpot")
        for share in (50, 90, 99)
    ),
]
DECODE = [
    record("decode.streams1.tok_s", 100),
    record("decode.streams8.tok_s", 500),
    record("decode.streams1.drafts.tok_s", 150),
    record("decode.streams8.drafts.tok_s", 550),
]
ALL = [*DECODE, *SERVE, JOIN]


def test_lines_are_what_was_measured() -> None:
    found = {chart.title: chart for chart in charts(of_last_run(ALL))}
    answers = found["Answers"]
    assert answers.lines == (
        Line("no drafts", (1, 8), (100, 500)),
        Line("drafts", (1, 8), (150, 550)),
    )
    first = found["Until the first token (TTFT)"]
    assert [line.label for line in first.lines] == ["p50", "p90", "p99"]
    assert first.lines[2] == Line("p99", (1, 4, 16), (100, 103, 115))
    streams = found["What streams have written: joiner"]
    assert [line.y[-1] for line in streams.lines] == [30, 20]
    assert streams.spans == (("long is read", 0.5, 2.0),)
    # The second stream stands still from 0.9 s to 2.0 s.
    stopped = [y for x, y in zip(streams.lines[1].x, streams.lines[1].y, strict=True) if 1 < x < 2]
    assert set(stopped) == {10}


def test_the_last_run_of_the_last_model_counts() -> None:
    older = record("decode.streams1.tok_s", 1, model="a", gpu=None)
    other = record("decode.streams1.tok_s", 2, model="b", gpu=None)
    newer = record("decode.streams1.tok_s", 3, model="a", gpu=None)
    assert of_last_run([older, other, newer]) == {"decode.streams1.tok_s": newer}


def test_a_timeline_is_small_and_loses_no_piece_between_its_ends() -> None:
    moments = [0.001 * at for at in range(10_000)]
    found = timeline([moments] * 20, 2.0, 6.0)
    assert len(found["streams"]) == MOST_STREAMS
    assert len(found["streams"][0]) <= BINS + 1
    assert sum(found["streams"][0]) == sum(2.0 <= moment <= 6.0 for moment in moments)
    assert timeline([[1.0]], 1.0, 1.0)["streams"] == [[1]]


def test_text_has_title_axes_and_the_names_of_lines() -> None:
    chart = charts(of_last_run([JOIN]))[0]
    text = drawn(chart, 80)
    for label in (chart.title, "(s)", "(pieces of text)", "stream 1", "stream 2", "long is read"):
        assert label in text
    assert sum("\u2800" < char <= "\u28ff" for char in text) > 50, "no dots are set"
    for one in charts(of_last_run(ALL)):
        for width in (60, 79, 80, 81, 120):
            assert max(map(len, drawn(one, width).splitlines())) <= width
    flat = drawn(Chart("t", "x", "y", (Line("a", (1.0,), (0.0,)),)), 40)
    assert "a" in flat


def test_points_of_a_few_are_marked() -> None:
    text = drawn(charts(of_last_run(DECODE))[0], 80)
    assert text.count("o") >= 2
    assert "500" not in text.splitlines()[0]
    assert "drafts" in text


def pixels(path: Path) -> Any:
    from PIL import Image

    with Image.open(path) as image:
        assert image.format == "PNG"
        image.load()
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize(("records", "count"), [([JOIN], 1), (DECODE, 1), (ALL, 5)])
def test_a_picture_decodes_has_its_size_and_shows_lines(
    records: list[dict[str, Any]], count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, png = tmp_path / "run.jsonl", tmp_path / "plot.png"
    saved.write_text("".join(json.dumps(one) + "\n" for one in records))
    ran = strata(capsys, "bench", "plot", str(saved), "--png", str(png))
    assert ran.code == 0, ran.err
    assert ran.out == ""
    found = pixels(png)
    assert found.shape == (round(count * HEIGHT_INCHES * DPI), WIDTH_INCHES * DPI, 3)
    for part in np.split(found, count):  # each chart has colours of its own, and is mostly white
        coloured = part.max(axis=2).astype(int) - part.min(axis=2) > 60
        assert coloured.sum() > 300
        assert (part == 255).all(axis=2).mean() > 0.5


def test_the_terminal_is_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "run.json"
    hostile = {**JOIN, "scenario": "a\x1b[2Jb"}
    saved.write_text(json.dumps({"records": [*DECODE, hostile]}))
    ran = strata(capsys, "bench", "plot", str(saved))
    assert ran.code == 0, ran.err
    assert "Answers" in ran.out
    assert "stream 2" in ran.out
    assert "\x1b[2J" not in ran.out


def test_what_cannot_be_drawn_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "run.jsonl"
    saved.write_text(json.dumps(record("soak.answers", 3)))
    ran = strata(capsys, "bench", "plot", str(saved))
    assert ran.code == 1
    assert "nothing here can be drawn" in ran.err
    saved.write_text(json.dumps({**JOIN, "timeline": {"streams": 3}}))
    ran = strata(capsys, "bench", "plot", str(saved))
    assert ran.code == 1
    assert "not what a suite" in ran.err


@pytest.mark.parametrize("name", ["plot.jpg", "missing/plot.png"])
def test_a_picture_that_cannot_be_written_is_told_before_anything_runs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--url", "http://127.0.0.1:9", "--png", str(tmp_path / name)]
    ran = strata(capsys, "bench", "serve", *words)
    assert ran.code == 1
    assert name in ran.err
    assert "127.0.0.1:9" not in ran.err


def test_a_missing_matplotlib_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.picture, "find_spec", lambda name: None)
    words = ["--url", "http://127.0.0.1:9", "--png", str(tmp_path / "plot.png")]
    ran = strata(capsys, "bench", "join", *words)
    assert ran.code == 1
    assert "matplotlib" in ran.err
    assert "strata-moe[plots]" in ran.err
