"""Folders that a command works in."""

from __future__ import annotations

import os
from pathlib import Path

from engine.errors import ConfigError
from setup.config.keys import KEYS_BY_NAME


def here() -> Path:
    """The current folder; `ConfigError` when somebody has removed it."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ConfigError(
            "the current folder is not there any more", "change to another one first"
        ) from None


def check_models_dir(place: Path) -> None:
    """Raises `ConfigError` for a folder whose models no config could name. It may be missing."""
    check_named(place, f"--models-dir {str(place)!r}")
    try:
        os.stat(os.path.expanduser(place))
    except (FileNotFoundError, PermissionError):
        return
    except OSError as error:
        message = f"--models-dir {place}: {error.strerror}"
        raise ConfigError(message, "name another folder") from None


def check_named(path: Path | str, what: str) -> None:
    """Raises `ConfigError`, beginning with `what`, for a path that a config cannot hold."""
    if not KEYS_BY_NAME["model"].check(str(path)):
        raise ConfigError(
            f"{what}: a path with control characters cannot stand in a config",
            "rename it, or move the models",
        )
