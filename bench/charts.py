"""What a plot of saved records shows: lines by the number of conversations, and streams by time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

Records = Mapping[str, Mapping[str, Any]]
"""By their metric."""


@dataclass(frozen=True, slots=True)
class Line:
    """Points with a name."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over one axis. `spans` are times (name, begin, end) on the x axis."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    spans: tuple[tuple[str, float, float], ...] = ()


def charts(records: Records) -> list[Chart]:
    """All that these records can show, in the order of the suites."""
    found = [
        _lines(records, _DECODE, ("Answers", "conversations", "tok/s"), "no drafts"),
        _lines(records, _PREFILL, ("Prompts", "tokens of the prompt", "tok/s")),
        _lines(records, _RATE, ("All clients together", "clients", "tok/s")),
        _lines(records, _TTFT, ("Until the first token (TTFT)", "clients", "ms")),
        _lines(records, _TPOT, ("Between two tokens (TPOT)", "clients", "ms")),
    ]
    return [chart for chart in found if chart.lines] + list(_timelines(records))


_DECODE = re.compile(r"decode\.streams(?P<x>\d+)(?:\.(?P<kind>.+))?\.tok_s")
_PREFILL = re.compile(r"prefill\.(?P<x>\d+)\.tok_s")
_RATE = re.compile(r"serve\.clients(?P<x>\d+)\.tok_s")
_TTFT = re.compile(r"serve\.clients(?P<x>\d+)\.ttft_(?P<kind>p\d+)_ms")
_TPOT = re.compile(r"serve\.clients(?P<x>\d+)\.tpot_(?P<kind>p\d+)_ms")


def _lines(
    records: Records, pattern: re.Pattern[str], said: tuple[str, str, str], plain: str = "median"
) -> Chart:
    """A line for each kind of metric that the pattern finds, by its place on the x axis. `said`:
    the title and what stands at the axes; `plain`: the line whose metric names no kind."""
    points: dict[str, dict[float, float]] = {}
    for metric, record in records.items():
        if found := pattern.fullmatch(metric):
            kind = found.groupdict().get("kind") or plain
            points.setdefault(kind, {})[float(found["x"])] = float(record["value"])
    return Chart(*said, tuple(_line(kind, known) for kind, known in points.items()))


def _line(label: str, points: Mapping[float, float]) -> Line:
    ordered = sorted(points.items())
    return Line(label, tuple(x for x, _ in ordered), tuple(y for _, y in ordered))


def _timelines(records: Records) -> Iterator[Chart]:
    for record in records.values():
        known = record.get("timeline")
        if known:
            yield _timeline(record, known)


def _timeline(record: Mapping[str, Any], known: Mapping[str, Any]) -> Chart:
    every_s = float(known["every_s"])
    lines = [
        Line(
            f"stream {number + 1}",
            tuple(every_s * at for at in range(len(counts) + 1)),
            tuple(accumulate(counts, initial=0)),
        )
        for number, counts in enumerate(known["streams"])
    ]
    who = record.get("scenario") or f"{record.get('clients')} clients"
    spans = tuple((f"{name} is read", begin, end) for name, begin, end in known["reads"])
    return Chart(f"What streams have written: {who}", "s", "pieces of text", tuple(lines), spans)


def of_last_run(records: Sequence[Mapping[str, Any]]) -> Records:
    """The newest record of each metric, of the model and the card that the last one is of."""
    last = records[-1]
    same = [
        one
        for one in records
        if (one.get("model"), one.get("gpu")) == (last.get("model"), last.get("gpu"))
    ]
    return {str(one["metric"]): one for one in same}
