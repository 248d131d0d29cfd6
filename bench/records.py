"""What a measurement keeps: enough to judge it later and to take it again."""

from __future__ import annotations

import datetime
import json
import platform
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.hardware import Hardware

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("torch", "numba", "numpy", "triton", "xllamacpp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One number: the median of its samples, all of one unit. `metric` names it."""

    metric: str
    unit: str
    samples: tuple[float, ...]
    details: Mapping[str, Any]

    @property
    def value(self) -> float:
        """The median sample."""
        ordered = sorted(self.samples)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else sum(ordered[middle - 1 : middle + 1]) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Where and how a run was made."""

    commit: str
    date: str
    command: str
    machine: Mapping[str, Any]
    gpu: str | None
    """The card that computed; `None`: the processor."""
    model: str
    config: Mapping[str, Any]
    versions: Mapping[str, str]


def circumstances(
    command: Sequence[str],
    hardware: Hardware,
    model: str,
    config: Mapping[str, Any],
    gpu: str | None = None,
) -> Circumstances:
    """The circumstances of a run on this machine, now; `gpu` is the card that computes."""
    return Circumstances(
        commit=_commit(),
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=shlex.join(command),
        machine={
            "cpu": hardware.cpu.name,
            "cores": hardware.cpu.cores,
            "ram_bytes": hardware.ram_bytes,
            "gpus": [gpu.name for gpu in hardware.gpus],
            "driver": next((gpu.driver for gpu in hardware.gpus), None),
        },
        gpu=gpu,
        model=model,
        config=dict(config),
        versions={"python": platform.python_version(), **_versions()},
    )


def as_record(measurement: Measurement, where: Circumstances) -> dict[str, Any]:
    """One line of a results file."""
    return {
        "metric": measurement.metric,
        "value": round(measurement.value, 4),
        "unit": measurement.unit,
        "samples": [round(sample, 4) for sample in measurement.samples],
        **dict(measurement.details),
        **asdict(where),
    }


def save(suite: str, records: Iterable[Mapping[str, Any]], folder: Path = RESULTS) -> Path:
    """Appends records to `<suite>.jsonl`."""
    path = folder / f"{suite}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return path


def newest(
    suite: str, model: str, gpu: str | None = None, folder: Path = RESULTS
) -> dict[str, dict[str, Any]]:
    """The last record of every metric of a model in `<suite>.jsonl`, on a card of that name or
    (None) on the processor."""
    path = folder / f"{suite}.jsonl"
    if not path.exists():
        return {}
    records = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line)
    return {
        record["metric"]: record
        for record in records
        if record["model"] == model and record["gpu"] == gpu
    }


def _commit() -> str:
    """The commit of the checkout with a + when it has changes; unknown outside of one."""
    words = ("git", "-C", str(RESULTS.parent), "describe", "--always", "--abbrev=12", "--dirty=+")
    try:
        done = subprocess.run(
            [*words, "--exclude=*"], capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
