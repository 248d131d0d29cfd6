"""Reads, checks, merges and writes `strata-<model>.json`."""

from __future__ import annotations

import difflib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import RunConfig
from engine.errors import ConfigError
from engine.flags import parse_engine_args
from setup.config_keys import CONFIG_KEYS, OWNED

_KEYS = {key.name: key for key in CONFIG_KEYS}


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config that was read and found sound. `values` has the known keys that stand in it."""

    path: Path
    values: Mapping[str, Any]
    run: RunConfig
    """What `args`, `model` and `parallel` ask of the engine."""
    warnings: tuple[str, ...]


def read_config(path: Path) -> ConfigFile:
    """Reads and checks a config file; relative paths in it count from its folder.

    Raises `ConfigError`: not there, not JSON (with line and column), a wrong type or range (with
    key, value and what is allowed), an engine flag that is not known.
    """
    values = read_json(path)
    unknown = [name for name in values if name not in _KEYS]
    known = {name: value for name, value in values.items() if name in _KEYS}
    for name, value in known.items():
        if not _KEYS[name].check(value):
            raise ConfigError(f"{path}: {name} is {json.dumps(value)}, not {_KEYS[name].allowed}")
    return ConfigFile(path, known, _run(path, known), tuple(map(_unknown, unknown)))


def _run(path: Path, values: Mapping[str, Any]) -> RunConfig:
    """The flags in `args` win over the keys `model` and `parallel`."""
    args = parse_engine_args(values.get("args", []), f"{path}: args:")
    folder = path.parent
    keys = RunConfig(
        model=folder / values["model"] if "model" in values else None,
        slots=values.get("parallel"),
        device=values.get("backend") if values.get("backend") != "hip" else "cuda",
    )
    placed = RunConfig(
        model=folder / args.model if args.model else None,
        mtp=folder / args.mtp if args.mtp else None,
    )
    return placed.over(args).over(keys)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _KEYS, n=1)
    return f"config key {name!r} is not known" + (f", did you mean {near[0]}?" if near else "")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; a byte-order mark is skipped."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror or error}", "write one with `strata setup`"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8") from None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}: line {error.lineno}, column {error.colno}: {error.msg}",
            "mend the file, or write it again with `strata setup`",
        ) from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deep") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: holds {json.dumps(value)[:40]}, not an object")
    return value


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A new config: setup's keys are new, every other key of the old one stays."""
    kept = {name: value for name, value in old.items() if name not in OWNED and name not in new}
    return {**new, **kept}


def dropped_args(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Engine flags that stood in the old `args` and are not in the new ones."""
    before, after = (config.get("args", []) for config in (old, new))
    if not isinstance(before, list):
        return []
    flags = {str(word) for word in after if str(word).startswith("--")}
    return [str(w) for w in before if str(w).startswith("--") and str(w) not in flags]


def write_config(path: Path, values: Mapping[str, Any]) -> bool:
    """Writes the file in one step; the old one becomes `.bak` when it differs.

    Returns whether anything changed.
    """
    text = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
    try:
        if path.exists():
            if path.read_text(encoding="utf-8-sig", errors="replace") == text:
                return False
            shutil.copyfile(path, path.with_name(path.name + ".bak"))
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror or error}", "choose another folder"
        ) from None
    return True
