"""Two saved runs beside each other: what changed, and whether the rounds bear it out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from engine.errors import ConfigError

_DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Change:
    """One metric of both runs. `ratio` is after over before, with its 95% interval (bootstrap of
    the ratio of medians); the samples are pairs in their order, of which `faster` of `pairs` are
    faster afterwards."""

    metric: str
    unit: str
    before: float
    after: float
    ratio: float
    low: float
    high: float
    faster: int
    pairs: int


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a results file, or of what a suite printed as JSON, in their order."""
    try:
        text = path.read_text(encoding="utf-8").strip()
        try:
            whole = json.loads(text)
            records = whole.get("records", [whole])
        except json.JSONDecodeError:
            records = [json.loads(line) for line in text.splitlines()]
        found = [record for record in records if record["metric"] and record["samples"]]
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"{path}: these are no records", "save them with --save, or --json > FILE"
        ) from None
    if not found:
        raise ConfigError(f"{path}: no records are here", "save them with --save, or --json > FILE")
    return found


def read_run(path: Path) -> dict[str, dict[str, Any]]:
    """The last record of each metric in a file, as `read_records` reads it."""
    return {record["metric"]: record for record in read_records(path)}


def compare(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> Iterator[Change]:
    """Of every metric that both runs have, in the order of the first."""
    for metric, old in before.items():
        new = after.get(metric)
        if new is None or new["unit"] != old["unit"] or metric.endswith("gpu_share"):
            continue  # how busy a card is, is neither better nor worse
        more_is_better = "/s" in old["unit"]
        pairs = list(zip(old["samples"], new["samples"], strict=False))
        faster = sum(b > a if more_is_better else b < a for a, b in pairs)
        low, high = _interval(old["samples"], new["samples"])
        a, b = median(old["samples"]), median(new["samples"])
        yield Change(metric, old["unit"], a, b, _ratio(a, b), low, high, faster, len(pairs))


def _interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Where 95% of the ratios of medians lie, of samples drawn again with replacement."""
    random = Random(1)
    ratios = sorted(
        _ratio(
            median(random.choices(before, k=len(before))),
            median(random.choices(after, k=len(after))),
        )
        for _ in range(_DRAWS)
    )
    return ratios[_DRAWS * 25 // 1000], ratios[_DRAWS * 975 // 1000 - 1]


def _ratio(before: float, after: float) -> float:
    return after / before if before else float("inf") if after else 1.0
