"""Reads a JSON file: never more than it should, and with its faults told precisely."""

from __future__ import annotations

import codecs
import json
import stat
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from setup.config.json_faults import find_fault, place
from setup.config.json_words import quoted
from setup.config.secrets import shown_value

WRITE = "write one with `strata setup`"
LARGEST_BYTES = 1 << 20
"""More than any config or recorded machine has."""

REMOVE = "mend it, or remove it and write it again with `strata setup`"
"""What to do about a config that cannot be read; setup itself says so, too."""
_SAVE = "save it as UTF-8; editors call that the encoding of a file"
_KINDS = (
    (stat.S_ISDIR, "is a folder", "name a file in it"),
    (stat.S_ISFIFO, "is a pipe, not a file", "write its text to a file first"),
    (stat.S_ISSOCK, "is a socket, not a file", "name a file"),
    (stat.S_ISCHR, "is a device, not a file", "name a file"),
    (stat.S_ISBLK, "is a device, not a file", "name a file"),
)
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_json(path: Path, mend: str = REMOVE, write: str = WRITE) -> dict[str, Any]:
    """The object in a JSON file; a UTF-8 byte-order mark is skipped.

    `mend` and `write` are the hints for a file of another kind of content, and for one that is not
    there or too large to be what it should be.

    Raises `ConfigError` with a hint: not there, not a file, more than 1 MiB, not UTF-8, not JSON
    (with line and column), the same key twice, NaN, or another value than an object.
    """
    value = read_value(path, write)
    if not isinstance(value, dict):
        shown = quoted(json.dumps(shown_value("", value), ensure_ascii=False))
        raise ConfigError(f"{path}: holds {shown}, not an object", mend)
    return value


def read_value(path: Path, write: str = WRITE) -> Any:
    """Any JSON value, with the errors of `read_json` but the last."""
    text = read_text(path, write)
    fault = find_fault(text)
    if fault is not None:
        where = f"{path}: line {fault.line}, column {fault.column}"
        is_config = bool(text.strip()) or write == WRITE
        raise ConfigError(f"{where}: {fault.message}", fault.hint if is_config else write)
    return json.loads(text)


def read_text(path: Path, write: str = WRITE) -> str:
    """The text of a small UTF-8 file, without a byte-order mark. Raises `ConfigError`."""
    data = _read_bytes(path, write)
    if data.startswith(_UTF16) or b"\0" in data[:4]:
        raise ConfigError(f"{path}: is UTF-16 text, not UTF-8", _SAVE)
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        line, column = place(before, len(before))
        where = f"{path}: line {line}, column {column}"
        raise ConfigError(
            f"{where}: byte 0x{data[error.start]:02x} is not UTF-8 text", _SAVE
        ) from None


def no_file(path: Path) -> str:
    """What keeps a path from being a small file, or nothing. Its content is not looked at."""
    try:
        status = path.stat()
    except OSError as error:
        link = "is a link that leads nowhere: " if path.is_symlink() else ""
        return f"{path}: {link}{error.strerror or error}"
    for is_kind, what, _ in _KINDS:
        if is_kind(status.st_mode):
            return f"{path}: {what}"
    return f"{path}: has more than {LARGEST_BYTES} bytes" * (status.st_size > LARGEST_BYTES)


def _read_bytes(path: Path, write: str) -> bytes:
    """What kind of file it is gets asked first: opening a pipe would wait for its other end."""
    try:
        mode = path.stat().st_mode
        for is_kind, what, hint in _KINDS:
            if is_kind(mode):
                raise ConfigError(f"{path}: {what}", hint)
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except PermissionError:
        raise ConfigError(f"{path}: may not be read", f"allow it: chmod u+r {path}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}", write) from None
    if len(data) > LARGEST_BYTES:
        raise ConfigError(
            f"{path}: has more than {LARGEST_BYTES} bytes, the most that such a file may have",
            f"name another file, or {write}",
        )
    return data
