"""A new config over the one that is there: what is the user's stays, and everything is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setup.config.args import flag_name, flag_pairs
from setup.config.keys import KEYS_BY_NAME, OWNED
from setup.config.merge_notes import dropped_notes, kept_notes, replaced_notes

_OWN_ENTRIES = {
    "env": frozenset({"STRATA_HIPBLASLT_TUNING", "STRATA_RESIDENT_PIN"}),
    "vision": frozenset({"exe", "mmproj", "model", "gpu", "max_tokens", "threads"}),
}
"""Entries of objects that setup writes itself."""
_KEPT_FLAGS = frozenset({"--expert-profile", "--expert-profile-save"})
"""Flags whose files hold what was learned on this machine."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The config to write, and sentences about what became of the old one."""

    config: Mapping[str, Any]
    kept: tuple[str, ...]
    replaced: tuple[str, ...]
    dropped: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """All sentences; what got lost comes first."""
        return (*self.dropped, *self.replaced, *self.kept)


def merge(old: Mapping[str, Any], new: Mapping[str, Any], folder: Path) -> Merged:
    """`new` over `old`. `folder` is the config's: paths in `args` count from it.

    What `new` says holds. Keys that setup owns and `new` does not have go. Every other key stays,
    `host`, `port`, `api_key` and `log` too, as do entries of `env` and `vision` that are not
    setup's own, and flags for files of learned routing. Other flags that stand in the old `args`
    alone are dropped, by name and value. A value that `run` would refuse goes, whoever says it. A
    second merge changes nothing.
    """
    new = {name: value for name, value in new.items() if _is_sound(name, value)}
    lost = [name for name, value in old.items() if name not in new and not _stays(name, value)]
    objects = {
        name: _inner(name, old[name], new.get(name), folder)
        for name in _OWN_ENTRIES
        if name in old and KEYS_BY_NAME[name].check(old[name])
    }
    rest = {n: v for n, v in old.items() if n not in new and n not in lost and n not in objects}
    config = {**new, **rest, **{name: value for name, value in objects.items() if value}}
    learned = _learned(old, new, folder)
    if learned:
        config["args"] = [*new.get("args", []), *(word for pair in learned for word in pair)]
    return Merged(
        config=config,
        kept=kept_notes(old, config, learned),
        replaced=replaced_notes(old, config),
        dropped=dropped_notes(old, config),
    )


def _stays(name: str, value: Any) -> bool:
    """Whether a key that the new config does not have is kept: the user's, and of use."""
    return name not in OWNED and _is_sound(name, value)


def _is_sound(name: str, value: Any) -> bool:
    """Whether `run` would take it. What setup takes over from an old config may not be."""
    return name not in KEYS_BY_NAME or KEYS_BY_NAME[name].check(value)


def _inner(
    name: str, old: Mapping[str, Any], new: Mapping[str, Any] | None, folder: Path
) -> dict[str, Any]:
    """The old entries of an object that are not setup's own, under the new ones.

    A user's image encoder stays while its file exists. Without a new object `vision` stays whole.
    """
    if name == "vision" and new is None:
        return dict(old)
    entries = {key: value for key, value in old.items() if key not in _OWN_ENTRIES[name]}
    encoder = old.get("mmproj")
    if name == "vision" and isinstance(encoder, str) and _is_file(folder, encoder):
        return {**entries, **(new or {}), "mmproj": encoder}
    return {**entries, **(new or {})}


def _learned(
    old: Mapping[str, Any], new: Mapping[str, Any], folder: Path
) -> tuple[tuple[str, ...], ...]:
    """Flags of the old `args` that name files of learned routing and are not in the new ones."""
    there = {flag_name(pair) for pair in flag_pairs(new)}
    return tuple(
        pair
        for pair in flag_pairs(old)
        if pair[0] in _KEPT_FLAGS - there
        and len(pair) == 2
        and (pair[0] != "--expert-profile" or _is_file(folder, pair[1]))
    )


def _is_file(folder: Path, name: str) -> bool:
    try:
        return (folder / Path(name).expanduser()).is_file()
    except (OSError, ValueError, RuntimeError):
        return False
