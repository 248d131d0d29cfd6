"""A new config over the one that is there: what is the user's stays, and everything is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setup.config.args import flag_name, flag_pairs
from setup.config.earlier import LEARNED, read_earlier
from setup.config.keys import OWNED
from setup.config.merge_notes import broken_notes, dropped_notes, kept_notes, replaced_notes
from setup.config.sound import sound_values

_OWN_ENTRIES = {
    "env": frozenset({"STRATA_HIPBLASLT_TUNING", "STRATA_RESIDENT_PIN"}),
    "vision": frozenset({"exe", "mmproj", "model", "gpu", "max_tokens", "threads"}),
}
"""Entries of objects that setup writes itself."""


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


def merge(
    old: Mapping[str, Any], new: Mapping[str, Any], folder: Path, where: str = "the config"
) -> Merged:
    """`new` over `old`. `folder` is the config's: paths in `args` count from it; `where` names it.

    What `new` says holds, its `args` too: `recommend` keeps what stays of the old ones. Keys that
    setup owns and `new` does not have go. Every other key stays, `host`, `port`, `api_key` and
    `log` too, as do entries of `env` and `vision` that are not setup's own, and flags for files of
    learned routing. A value that `run` would refuse goes, in the words of `run`. A second merge
    changes nothing.
    """
    sound = sound_values(old, where)
    broken = broken_notes(sound.faults, new)
    old, dropped_flags = sound.values, read_earlier(sound.values, where).faults
    new = sound_values(new, where).values
    lost = [name for name in old if name not in new and name in OWNED]
    objects = {
        name: _inner(name, old[name], new.get(name), folder) for name in _OWN_ENTRIES if name in old
    }
    rest = {n: v for n, v in old.items() if n not in new and n not in lost and n not in objects}
    config = {
        **new,
        **rest,
        **{name: value for name, value in objects.items() if value or name != "env"},
    }
    learned = _learned(old, new, folder)
    if learned:
        config["args"] = [*new.get("args", []), *(word for pair in learned for word in pair)]
    return Merged(
        config=config,
        kept=kept_notes(old, config, learned),
        replaced=replaced_notes(old, config, dropped_flags),
        dropped=(*broken, *dropped_notes(old, config, dropped_flags)),
    )


def start_again(old: Mapping[str, Any], new: Mapping[str, Any], where: str) -> Merged:
    """`new` alone, and what it changes and drops of `old`."""
    sound = sound_values(old, where)
    faults = read_earlier(sound.values, where).faults
    return Merged(
        config=new,
        kept=(),
        replaced=replaced_notes(sound.values, new, faults),
        dropped=(*broken_notes(sound.faults, new), *dropped_notes(sound.values, new, faults)),
    )


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
        if pair[0] in LEARNED - there
        and len(pair) == 2
        and (pair[0] != "--expert-profile" or _is_file(folder, pair[1]))
    )


def _is_file(folder: Path, name: str) -> bool:
    try:
        return (folder / Path(name).expanduser()).is_file()
    except (OSError, ValueError, RuntimeError):
        return False
