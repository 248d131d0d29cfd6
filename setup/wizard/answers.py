"""The answers of an interview, and what they ask of setup."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from setup.asked import Asked

OWN = "own"
"""The family of a file that is no row of the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """One field a question, by its key; `None`: not answered.

    `taken` names the questions whose recommended answer was taken: setup then chooses by its own
    rules and says so, as it does with `--yes`.
    """

    vendor: str | None = None
    """The backend of the maker's cards: cuda or hip."""
    cards: tuple[int, ...] | Literal["all"] | None = None
    family: str | None = None
    """A family of the catalogue, or `OWN` beside a `file`."""
    size: str | None = None
    file: Path | None = None
    keep: str | None = None
    spread: str | None = None
    single: int | None = None
    context: int | None = None
    rope: str | None = None
    kv: str | None = None
    kv_streaming: str | None = None
    images: str | None = None
    download: bool | None = None
    write: bool | None = None
    taken: frozenset[str] = frozenset()

    def answered(self, key: str, value: Any, *, taken: bool) -> Answers:
        """With one answer more; `taken`: it is the recommended one."""
        names = self.taken | {key} if taken else self.taken - {key}
        return replace(self, **{key: value}, taken=names)

    def without(self, *keys: str) -> Answers:
        """As if these questions had not been asked yet."""
        return replace(self, **dict.fromkeys(keys), taken=self.taken - set(keys))

    def asked(self, flags: Asked) -> Asked:
        """What flags and answers ask of setup; a recommended answer is left to its rules."""
        said = {
            field: getattr(self, key)
            for key, field in _FIELDS.items()
            if key not in self.taken and getattr(self, key) is not None
        }
        if said.get("vision") == "no":
            said["vision"] = None
        return replace(flags, **said)


_FIELDS = {
    "vendor": "backend",
    "cards": "gpus",
    "context": "context",
    "rope": "rope_scaling",
    "kv": "kv",
    "kv_streaming": "kv_streaming",
    "images": "vision",
}


def answers_of(flags: Asked) -> Answers:
    """The questions that flags have answered: a flag is consent and is not asked again."""
    return Answers(**{key: getattr(flags, field) for key, field in _FIELDS.items()})
