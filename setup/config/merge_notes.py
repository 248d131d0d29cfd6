"""Sentences about what a new config keeps, replaces and drops of the old one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setup.config.args import flag_name, flag_pairs
from setup.config.diff import shown, shown_pair
from setup.config.earlier import LEARNED
from setup.config.keys import DEFAULT_HOST, DEFAULT_PORT, KEYS_BY_NAME, OWNED

_FLAGS = {"host": "--host", "port": "--port", "api_key": "--api-key", "parallel": "--parallel"}
"""Keys that a flag of setup changes, and that stay without it."""
_USUAL = {"host": DEFAULT_HOST, "port": DEFAULT_PORT}
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
        *([f"kept as they are: {_first(names)}"] if names else []),
        *(f"engine flag {shown_pair(pair)} is kept" for pair in learned),
    )


def stays_notes(
    old: Mapping[str, Any], new: Mapping[str, Any], fresh: Mapping[str, Any], where: str
) -> tuple[str, ...]:
    """What `new` has from `old`, the config `where`, and setup would not write by itself: `fresh`
    is what it would."""
    before, alone = set(flag_pairs(old)), set(flag_pairs(fresh))
    found = [
        f"{shown_pair(pair)} stays from {where}"
        for pair in flag_pairs(new)
        if pair in before - alone and pair[0] not in LEARNED
    ]
    name = new.get("model_name")
    if name == old.get("model_name") != fresh.get("model_name"):
        found.append(f"model_name {shown('model_name', name)} stays from {where}")
    return (*found, *(["--reset writes what is recommended instead"] if found else []))


def broken_notes(faults: Mapping[str, Sequence[str]], new: Mapping[str, Any]) -> tuple[str, ...]:
    """What of the old config `run` would refuse, and what stands there now."""
    return tuple(
        f"{fault}: {f'{shown(name, new[name])} is written' if _plain(name, new) else 'not kept'}"
        for name, sentences in faults.items()
        for fault in sentences
    )


def _plain(name: str, new: Mapping[str, Any]) -> bool:
    """Whether a key has one new value that can be named."""
    return name in new and not isinstance(new[name], dict | list)


def replaced_notes(
    old: Mapping[str, Any], new: Mapping[str, Any], faults: Mapping[tuple[str, ...], str]
) -> tuple[str, ...]:
    """What has another value now. `faults` are flags that are told otherwise."""
    changed = [name for name in old if name in new and new[name] != old[name] and name != "args"]
    keys = [sentence for name in changed for sentence in _becomes(name, old[name], new[name])]
    flags = {flag_name(pair): pair for pair in flag_pairs(new)}
    pairs = [
        f"engine flag {shown_pair(pair)} becomes {shown_pair(flags[flag_name(pair)])}"
        for pair in flag_pairs(old)
        if pair not in faults
        and flag_name(pair) in flags
        and flags[flag_name(pair)][1:] != pair[1:]
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


def dropped_notes(
    old: Mapping[str, Any], new: Mapping[str, Any], faults: Mapping[tuple[str, ...], str]
) -> tuple[str, ...]:
    """What is gone, with its values. `faults` says why flags go."""
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
        faults.get(pair, f"engine flag {shown_pair(pair)} of the old config is not kept")
        for pair in flag_pairs(old)
        if pair in faults or flag_name(pair) not in flags
    ]
    return (*keys, *entries, *pairs)


def _lost(name: str, value: Any) -> str:
    why = ": setup chooses it anew" if name in OWNED else ""
    return f"{_said(name, value)} of the old config is not kept{why}"


def _first(names: Sequence[str], most: int = 20) -> str:
    """The names, as many as anybody reads."""
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])


def _said(name: str, value: Any) -> str:
    key = KEYS_BY_NAME.get(name)
    return name if key is not None and key.secret else f"{name} {shown(name, value)}"
