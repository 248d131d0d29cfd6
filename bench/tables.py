"""Tables of saved records, as readers of a suite want them: a line a load, or a line a question."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.charts import Records
from bench.client import PERCENTILES
from bench.compare import Change

Rows = tuple[tuple[str, ...], ...]
Table = tuple[tuple[str, ...], Rows]
"""Titles, and rows of as many cells."""


def table(suite: str, records: Records) -> Table:
    """The table of a suite; of one that has none of its own, a line a metric."""
    return _OWN.get(suite, _metrics)(records)


def change_table(changes: Sequence[Change]) -> Table:
    """Two arms or runs: the change of medians with its 95% interval, and how many pairs agree."""
    titles = ("metric", "before", "after", "unit", "change", "95% interval", "faster")
    return titles, tuple(
        (
            one.metric,
            f"{one.before:.4g}",
            f"{one.after:.4g}",
            one.unit,
            _gain(one.ratio),
            f"{_gain(one.low)} to {_gain(one.high)}",
            f"{one.faster} of {one.pairs}",
        )
        for one in changes
    )


def _gain(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"


def _serve(records: Records) -> Table:
    """TTFT and TPOT in ms: the medians of the rounds' percentiles."""
    names = " / ".join(f"p{share}" for share in PERCENTILES)
    titles = ["clients", "rounds", "tok/s", "a client", f"TTFT {names}, ms", f"TPOT {names}, ms"]
    counts = sorted(
        int(found[1]) for metric in records if (found := re.match(r"serve\.clients(\d+)\.", metric))
    )
    shown = any(metric.endswith(".gpu_share") for metric in records)
    rows = []
    for count in dict.fromkeys(counts):
        start = f"serve.clients{count}"
        rate, tpot = records.get(f"{start}.tok_s"), records.get(f"{start}.tpot_p50_ms")
        between = float(tpot["value"]) if tpot else 0.0
        cells = [
            str(count),
            "" if rate is None else str(len(rate["samples"])),
            _spread(rate, lambda value: f"{value:.1f}"),
            f"{1e3 / between:.1f}" if between else "",
            _percentiles(records, f"{start}.ttft"),
            _percentiles(records, f"{start}.tpot"),
        ]
        rows.append((*cells, *[_spread(records.get(f"{start}.gpu_share"), _per_cent)] * shown))
    return (*titles, *["GPU"] * shown), tuple(rows)


def _percentiles(records: Records, start: str) -> str:
    found = [records.get(f"{start}_p{share}_ms") for share in PERCENTILES]
    return " / ".join("-" if one is None else f"{float(one['value']):.1f}" for one in found)


def _join(records: Records) -> Table:
    """A line a number: a scenario first, what else is told of it behind dots."""
    rows: list[tuple[str, str]] = []
    for scenario, (of, lines) in _SCENARIOS.items():
        known = {
            metric.rpartition(".")[2]: record
            for metric, record in records.items()
            if metric.startswith(f"join.{scenario}.")
        }
        begun = False
        for key, (what, shown) in lines.items():
            if key in known:
                before = "..." if begun else _said(of, known[key]) + ":"
                rows.append((f"{before} {_said(what, known[key])}", _spread(known[key], shown)))
                begun = True
    return ("", "median (lowest to highest)"), tuple(rows)


def _said(sentence: str, record: Mapping[str, Any]) -> str:
    lengths = {
        name: f"{record[f'{name}_tokens'] / 1024:.3g}K" for name in ("long", "second", "history")
    }
    return sentence.format(streams=record["streams"], crowd=record["crowd"], **lengths)


def _spread(record: Mapping[str, Any] | None, shown: Callable[[float], str]) -> str:
    """The median, and between which samples it lies."""
    if record is None:
        return ""
    low, high = shown(min(record["samples"])), shown(max(record["samples"]))
    median = shown(float(record["value"]))
    return median if low == high else f"{median} ({low} to {high})"


def _seconds_of_ms(value: float) -> str:
    return f"{value / 1e3:.2f} s" if value >= 1e3 else f"{value:.0f} ms"


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def _per_cent(value: float) -> str:
    return f"{100 * value:.0f}%"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


Line = tuple[str, Callable[[float], str]]
_STREAMS: dict[str, Line] = {
    "longest_stop_s": ("longest stop of a stream", _seconds),
    "streams_meanwhile_pieces": ("the streams' tokens meanwhile", _whole),
    "streams_meanwhile_rate": ("the streams' tokens a second meanwhile", lambda v: f"{v:.1f}"),
}
_GPU: dict[str, Line] = {"gpu_share": ("GPU utilisation while prompts are read", _per_cent)}
_SCENARIOS: dict[str, tuple[str, dict[str, Line]]] = {
    "joiner": (
        "a prompt of {long} beside {streams} streams",
        {
            **_STREAMS,
            "long_ttft_ms": ("the prompt's TTFT", _seconds_of_ms),
            "alone_ttft_ms": ("the same prompt's TTFT alone", _seconds_of_ms),
            "cost_share": ("what it waits longer than alone", _per_cent),
            **_GPU,
        },
    ),
    "two_joiners": (
        "prompts of {long} and {second} beside {streams} streams",
        {
            **_STREAMS,
            "long_ttft_ms": ("the first prompt's TTFT", _seconds_of_ms),
            "second_ttft_ms": ("the second prompt's TTFT", _seconds_of_ms),
            **_GPU,
        },
    ),
    "read_alone": (
        "a prompt of {long} alone",
        {"long_ttft_ms": ("its TTFT", _seconds_of_ms)},
    ),
    "followup": (
        "a short question 1 s into the read of {long}",
        {
            "question_ttft_ms": ("its TTFT", _seconds_of_ms),
            "long_ttft_ms": ("the long prompt's own TTFT", _seconds_of_ms),
        },
    ),
    "next_turn": (
        "a question behind {history} of conversation",
        {
            "slot_ttft_ms": ("TTFT from its slot", _seconds_of_ms),
            "slot_fresh_ttft_ms": ("a fresh prompt of as many new tokens", _seconds_of_ms),
            "checkpoint_ttft_ms": ("TTFT from a checkpoint", _seconds_of_ms),
            "checkpoint_fresh_ttft_ms": ("a fresh prompt of as many new tokens", _seconds_of_ms),
            "behind_crowd_ttft_ms": ("TTFT after {crowd} others took its slot", _seconds_of_ms),
            "behind_crowd_fresh_ttft_ms": ("a fresh prompt of as many new tokens", _seconds_of_ms),
        },
    ),
}


def _metrics(records: Records) -> Table:
    """Median and samples; beside the floor where that is known."""
    titles = ("metric", "median", "unit", "floor", "samples")
    return titles, tuple(_metric(metric, record) for metric, record in records.items())


def _metric(metric: str, record: Mapping[str, Any]) -> tuple[str, ...]:
    samples = " ".join(f"{sample:.4g}" for sample in record["samples"])
    return metric, f"{record['value']:.4g}", str(record["unit"]), _floor(record), samples


def _floor(record: Mapping[str, Any]) -> str:
    value, hits = float(record["value"]), record.get("expert_hit_rate")
    beside = "" if hits is None else f", {hits:.0%} of experts on the card"
    floor = record.get("floor_tok_s")
    least = record.get("floor_us") or record.get("floor_ms")
    if floor:
        return f"{value / floor:.0%} of {floor:.0f}{beside}"
    return f"{least / value:.0%} of {least:.1f}" if least else "-"


_OWN: dict[str, Callable[[Records], Table]] = {"serve": _serve, "join": _join}
