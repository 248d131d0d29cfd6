"""What of a config `run` would take: the rest is named in the words that `run` has for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ConfigError
from setup.config.file import check_value
from setup.config.keys import KEYS_BY_NAME
from setup.config.values import check_environment, check_sampling

_ENTRIES = {"env": check_environment, "sampling": check_sampling}
"""Objects whose entries stand alone: one that is of no use goes without the others."""


@dataclass(frozen=True, slots=True)
class Sound:
    """The values that are of use, and a sentence for each other one, by its key."""

    values: Mapping[str, Any]
    faults: Mapping[str, tuple[str, ...]]


def sound_values(config: Mapping[str, Any], where: str) -> Sound:
    """Without what `run` refuses; `where` names the config in the sentences. Engine flags are
    `earlier`'s part."""
    values: dict[str, Any] = {}
    faults: dict[str, tuple[str, ...]] = {}
    for name, value in config.items():
        if name in _ENTRIES and isinstance(value, dict):
            values[name], faults[name] = _entries(name, value, where)
            continue
        fault = _fault(name, value, where)
        if fault is None:
            values[name] = value
        else:
            faults[name] = (fault,)
    return Sound(values, {name: found for name, found in faults.items() if found})


def told(error: ConfigError) -> str:
    """An error and its hint as one sentence."""
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _entries(
    name: str, value: Mapping[str, Any], where: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    found = {entry: _entry_fault(name, {entry: inner}, where) for entry, inner in value.items()}
    kept = {entry: inner for entry, inner in value.items() if found[entry] is None}
    return kept, tuple(fault for fault in found.values() if fault is not None)


def _entry_fault(name: str, entry: Mapping[str, Any], where: str) -> str | None:
    return _fault(name, entry, where) or _caught(lambda: _ENTRIES[name](entry, where))


def _fault(name: str, value: Any, where: str) -> str | None:
    key = KEYS_BY_NAME.get(name)
    return None if key is None else _caught(lambda: check_value(key, value, where))


def _caught(check: Callable[[], object]) -> str | None:
    try:
        check()
    except ConfigError as error:
        return told(error)
    return None
