"""Strict reading of the package's TOML files: a fault names the file and the key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from engine.errors import ConfigError

Kind = Literal["text", "texts", "flag", "whole", "number", "table", "tables"]

_WORDS: Mapping[Kind, str] = {
    "text": "a text that is not empty",
    "texts": "a list of texts",
    "flag": "true or false",
    "whole": "a whole number from 0",
    "number": "a number from 0",
    "table": "a table",
    "tables": "a list of tables",
}


def read_toml(path: Path) -> dict[str, Any]:
    """The file as plain Python values. `ConfigError` names file, line and column."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()
    except (OSError, UnicodeDecodeError, TOMLKitError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def checked(
    record: Mapping[str, Any],
    required: Mapping[str, Kind],
    optional: Mapping[str, Kind],
    where: str,
) -> dict[str, Any]:
    """`record` when it holds every required key, no unknown one, and the right types.

    Lists come back as tuples. `ConfigError` names `where` and the key.
    """
    kinds = {**required, **optional}
    for key in record:
        if key not in kinds:
            raise ConfigError(f"{where}: {key!r} is not a key", f"keys are {', '.join(kinds)}")
    for key in required:
        if key not in record:
            raise ConfigError(f"{where}: {key!r} is missing")
    for key, value in record.items():
        if not _holds(value, kinds[key]):
            raise ConfigError(f"{where}: {key!r} is {value!r}, not {_WORDS[kinds[key]]}")
    return {key: tuple(v) if isinstance(v, list) else v for key, v in record.items()}


def _holds(value: object, kind: Kind) -> bool:
    match kind:
        case "text":
            return isinstance(value, str) and bool(value.strip())
        case "texts":
            return isinstance(value, list) and all(isinstance(v, str) and v for v in value)
        case "flag":
            return isinstance(value, bool)
        case "whole":
            return isinstance(value, int) and not isinstance(value, bool) and value >= 0
        case "number":
            if not isinstance(value, int | float) or isinstance(value, bool):
                return False
            return 0 <= value < 1e18
        case "table":
            return isinstance(value, dict)
        case "tables":
            return isinstance(value, list) and all(isinstance(v, dict) for v in value)
