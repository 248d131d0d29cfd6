"""Sentences about what a new config keeps, replaces and drops of the old one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setup.config.args import flag_name, flag_pairs
from setup.config.diff import shown
from setup.config.keys import KEYS_BY_NAME, OWNED

_FLAGS = {"host": "--host", "port": "--port", "api_key": "--api-key", "parallel": "--parallel"}
"""Keys that a flag of setup changes, and that stay without it."""
_USUAL = {"host": "127.0.0.1", "port": 8080}
"""Values that nobody chose: keeping them needs no sentence."""


def kept_notes(
    old: Mapping[str, Any], new: Mapping[str, Any], learned: Sequence[tuple[str, ...]]
) -> tuple[str, ...]:
    """What stays. `learned` are flags that setup would not write again."""
    same = [name for name in old if name in new and old[name] == new[name] and name not in OWNED]
    flags = [
        f"{_said(name, old[name])} is kept ({_FLAGS[name]} changes it)"
        for name in same
        if name in _FLAGS and old[name] != _USUAL.get(name)
    ]
    names = [name for name in same if name not in _FLAGS]
    return (
        *flags,
        *([f"kept as they are: {', '.join(names)}"] if names else []),
        *(f"engine flag {' '.join(pair)} is kept" for pair in learned),
    )


def replaced_notes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """What has another value now."""
    changed = [name for name in old if name in new and new[name] != old[name] and name != "args"]
    keys = [sentence for name in changed for sentence in _becomes(name, old[name], new[name])]
    flags = {flag_name(pair): pair for pair in flag_pairs(new)}
    pairs = [
        f"engine flag {' '.join(pair)} becomes {' '.join(flags[flag_name(pair)])}"
        for pair in flag_pairs(old)
        if flag_name(pair) in flags and flags[flag_name(pair)][1:] != pair[1:]
    ]
    return (*keys, *pairs)


def _becomes(name: str, old: Any, new: Any) -> list[str]:
    """One sentence, or one for each entry of an object that both have with other values."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [f"{_said(name, old)} becomes {shown(name, new)}"]
    return [
        f"{name}.{entry} {shown(entry, value)} becomes {shown(entry, new[entry])}"
        for entry, value in old.items()
        if entry in new and new[entry] != value
    ]


def dropped_notes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """What is gone, with its values."""
    keys = [_lost(name, value) for name, value in old.items() if name not in new]
    entries = [
        f"{name}.{entry} is not kept: setup writes it"
        for name, value in old.items()
        if name in new and isinstance(value, dict) and isinstance(new[name], dict)
        for entry in value
        if entry not in new[name]
    ]
    flags = {flag_name(pair) for pair in flag_pairs(new)}
    pairs = [
        f"engine flag {' '.join(pair)} of the old config is not kept; add it to args again"
        for pair in flag_pairs(old)
        if flag_name(pair) not in flags
    ]
    return (*keys, *entries, *pairs)


def _lost(name: str, value: Any) -> str:
    key = KEYS_BY_NAME.get(name)
    usable = key is None or key.owned or key.check(value)
    why = "setup chooses it anew" if usable or key is None else f"it is not {key.allowed}"
    return f"{_said(name, value)} of the old config is not kept: {why}"


def _said(name: str, value: Any) -> str:
    key = KEYS_BY_NAME.get(name)
    return name if key is not None and key.secret else f"{name} {shown(name, value)}"
