"""Which model `--model` and `--family` mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ConfigError

if TYPE_CHECKING:
    from setup.models.catalogue import ModelRow
    from setup.wizard.answers import Answers
    from setup.wizard.subjects import Models


def with_model(
    answers: Answers,
    model: str | None,
    family: str | None,
    models: Models,
    folder: Path,
    note: Callable[[str], None],
) -> Answers:
    """The answers with the named family, size or file: what is named is meant.

    A name is a path, else a size of the catalogue, else a file on the disk. `ConfigError` for
    what is none of them; `note` hears which family was taken of several.
    """
    if family is not None:
        _check_family(family, models)
        answers = replace(answers, family=family, keep="keep")
    if model is None:
        return answers
    path = _file(model, family, models, folder)
    if path is not None:
        if family is not None:
            raise ConfigError(
                f"--family {family} and the file {model} are both given",
                "a file needs no family: leave one of them out",
            )
        from setup.wizard.answers import OWN

        return replace(answers, family=OWN, file=path)
    row = _row(model, family, note)
    return replace(answers, family=row.family, size=row.key, keep="keep")


def is_path(name: str, folder: Path) -> bool:
    """Whether `--model` names a file and not a size."""
    return name.lower().endswith(".gguf") or "/" in name or os.path.exists(folder / name)


def _check_family(family: str, models: Models) -> None:
    from setup.models.catalogue import rows_named

    families = models.families()
    if family in families:
        return
    sized = rows_named(family)
    hint = f"families are {', '.join(families)}"
    if sized:
        hint = f"it is a size: --model {sized[0].key}; {hint}"
    raise ConfigError(f"--family: {family!r} is not one", hint)


def _file(name: str, family: str | None, models: Models, folder: Path) -> Path | None:
    """The file that is meant; `None` for what should be a size."""
    from setup.models.bundled import find_model
    from setup.models.catalogue import rows_named

    if os.path.exists(folder / os.path.expanduser(name)):
        return find_model(name, folder)
    if rows_named(name, family):
        return None
    found = models.named(name)
    if found is not None:
        if not found.complete:
            raise ConfigError(f"model: {found.path}: {found.state}", found.hint)
        return found.path
    if name.casefold() in (models.bundled.name, models.bundled.stem):
        return models.bundled
    return find_model(name, folder) if is_path(name, folder) else None


def _row(name: str, family: str | None, note: Callable[[str], None]) -> ModelRow:
    """The row with that name, of the first family that has it."""
    from setup.models.catalogue import also_meant, find_row

    row = find_row(name, family)
    others = also_meant(name, row) if family is None else ()
    if others:
        also = ", ".join(f"--family {other.family} --model {other.key}" for other in others)
        note(f"note: {name} is taken as {row.title} {row.key} (--family {row.family}); also {also}")
    return row
