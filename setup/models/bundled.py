"""Which model: the user's file, or the one that comes with Strata."""

from __future__ import annotations

import os
import re
from pathlib import Path

import profiles
from engine.errors import ModelFileError
from setup.models.catalogue import ModelRow, catalogue

_BUNDLED = "strata-tiny.gguf"


def bundled_model() -> Path:
    """The model in the package. Raises `ModelFileError` when the installation lacks it."""
    path = Path(profiles.__file__).parent / "models" / _BUNDLED
    if not path.is_file():
        raise ModelFileError(
            f"the bundled model is missing: {path}",
            "name a GGUF file with --model, or install Strata again",
        )
    return path


def find_model(asked: str | None, folder: Path) -> Path:
    """The file that `--model` or the config names (relative to `folder`); else the bundled one."""
    if asked is None:
        return bundled_model()
    path = folder / os.path.expanduser(asked)
    if os.path.isdir(path):
        raise ModelFileError(f"model: {path} is a folder", "name the GGUF file in it")
    if not os.path.isfile(path):
        raise ModelFileError(f"model: {path} does not exist", _where_from(path.name))
    return path


def fetch_command(row: ModelRow) -> str:
    """The command that fetches a model of the catalogue."""
    return f"strata setup --family {row.family} --model {row.key} --download"


def _where_from(name: str) -> str:
    """What to do about a model that is not there: the catalogue may know it."""
    for row in catalogue():
        if name in (file.name for file in row.files):
            return f"fetch it: {fetch_command(row)}"
    return "name a GGUF file with --model"


def model_tag(path: Path) -> str:
    """The model's part of `strata-<model>.json`: the file's name without shard and suffix."""
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", path.name.removesuffix(".gguf"))
    tag = re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._")
    return tag.removeprefix("strata-") or "model"
