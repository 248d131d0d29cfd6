"""What Strata remembers of a person's machine: settings that a calibration found.

It lies in `$XDG_CONFIG_HOME/strata/settings.json` (`~/.config` without it, `%APPDATA%` on Windows).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from engine.hardware import Hardware
from setup.config.text import read_json
from setup.config.write import write_config

_AGAIN = "mend it, or remove it and calibrate again"
SETTINGS = ("spec", "spec_min_p", "prefill")
"""Engine settings that a calibration may change."""


@dataclass(frozen=True, slots=True)
class Gained:
    """A setting that was faster: `gain` is its speed over the default's."""

    setting: str
    value: float
    gain: float

    @property
    def args(self) -> tuple[str, str]:
        """The engine flag and its value."""
        return "--" + self.setting.replace("_", "-"), f"{self.value:g}"

    @property
    def told(self) -> str:
        """In words, such as "--spec 3 (+12%)"."""
        return f"{' '.join(self.args)} ({self.gain - 1:+.0%})"


@dataclass(frozen=True, slots=True)
class Calibration:
    """What gained enough to be kept, and the day of the measurement."""

    gained: tuple[Gained, ...]
    date: str
    measured_now: bool = False
    """By this run, not an earlier one."""


def settings_path(environment: Mapping[str, str], home: Path) -> Path:
    """Where the settings lie."""
    folder = environment.get("XDG_CONFIG_HOME") or environment.get("APPDATA")
    return (Path(folder) if folder else home / ".config") / "strata" / "settings.json"


def hardware_key(hardware: Hardware, model_name: str, context: int) -> str:
    """What a calibration holds for: the same cards, processor, memory, model and context."""
    cards = "+".join(gpu.name for gpu in hardware.gpus) or "no GPU"
    vram = "+".join(f"{gpu.vram_gib:.0f}" for gpu in hardware.gpus) or "0"
    words = (cards, vram, hardware.cpu.name, f"{hardware.ram_gib:.0f}", model_name, str(context))
    return "|".join((*words, "text"))


def load_calibration(path: Path, key: str) -> Calibration | None:
    """What was found for `key`; `None` when nothing was. A damaged file is a `ConfigError`."""
    if not path.exists():
        return None
    record = _calibrations(path, read_json(path, _AGAIN)).get(key)
    if record is None:
        return None
    try:
        gained = tuple(
            Gained(str(name), float(found["value"]), float(found["gain"]))
            for name, found in record["settings"].items()
        )
        date = str(record["date"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _damaged(path, f"calibration {key!r}") from None
    unknown = {found.setting for found in gained} - set(SETTINGS)
    if unknown:
        raise _damaged(path, f"calibration {key!r}: setting {min(unknown)!r}")
    return Calibration(gained, date)


def save_calibration(path: Path, key: str, found: Calibration) -> None:
    """Adds or replaces one calibration; everything else in the file stays."""
    record = read_json(path, _AGAIN) if path.exists() else {}
    settings = {one.setting: {"value": one.value, "gain": one.gain} for one in found.gained}
    calibrations = {
        **_calibrations(path, record),
        key: {"settings": settings, "date": found.date},
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path.parent}: cannot be made: {error.strerror or error}",
            "set XDG_CONFIG_HOME to a folder that can be written",
        ) from None
    write_config(path, {**record, "calibration": calibrations})


def _calibrations(path: Path, record: Mapping[str, Any]) -> Mapping[str, Any]:
    value = record.get("calibration", {})
    if not isinstance(value, dict):
        raise _damaged(path, "calibration")
    return value


def _damaged(path: Path, what: str) -> ConfigError:
    return ConfigError(
        f"{path}: {what} is not what Strata writes",
        f"mend it, or remove {path} and calibrate again",
    )
