"""Writes a config in one step: there is the old file or the new one, never half of one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import ConfigError

_PRIVATE = 0o600
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


def write_config(path: Path, values: Mapping[str, Any]) -> bool:
    """Writes the file; the old one becomes `.bak` when it differs. Returns whether it did.

    A link stays one: the file that it points to is written, and `.bak` lies beside that. A file
    with an `api_key` can be read by its owner only; others keep their mode and owner. On
    `ConfigError` the old file is untouched and no temporary one stays.
    """
    data = _text(values).encode()
    try:
        target = path.resolve()
        old = _status(target)
        if old is not None:
            before = target.read_bytes()
            if before == data:
                return False
            backup = target.with_name(target.name + ".bak")
            _put(backup, before, _mode(old, before), old)
        _put(target, data, _mode(old, data), old)
    except (OSError, RuntimeError) as error:
        raise _refused(path, error) from None
    return True


def _text(values: Mapping[str, Any]) -> str:
    """Readable JSON. Half a surrogate pair, which UTF-8 cannot hold, is written as its escape."""
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _status(target: Path) -> os.stat_result | None:
    """The old file's; `None` when there is none. Raises for what is not a file to write."""
    try:
        status = target.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{target}: is not a file, so it cannot be written", "name another one")
    if not status.st_mode & 0o222:
        raise ConfigError(
            f"{target}: cannot be written: the file is read-only", f"allow it: chmod u+w {target}"
        )
    if not os.access(target, os.W_OK):
        raise ConfigError(
            f"{target}: cannot be written: it belongs to another user",
            "start as its owner, or in another folder",
        )
    return status


def _mode(old: os.stat_result | None, data: bytes) -> int | None:
    """The mode of a file with this content; `None`: what a new file gets."""
    if b'"api_key"' in data:
        return _PRIVATE
    return None if old is None else stat.S_IMODE(old.st_mode)


def _put(target: Path, data: bytes, mode: int | None, owner: os.stat_result | None) -> None:
    """Writes to a new file beside `target`, waits for the disk, and renames it to `target`."""
    temporary = target.with_name(f".strata-{secrets.token_hex(6)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(temporary, flags, mode or 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if owner is not None:
            _same_owner(temporary, owner)
        if mode is not None:
            temporary.chmod(mode)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def _same_owner(path: Path, owner: os.stat_result) -> None:
    """Run by root, the file still belongs to whom it belonged."""
    with contextlib.suppress(OSError, AttributeError):
        if os.geteuid() == 0:
            os.chown(path, owner.st_uid, owner.st_gid)


def _sync_folder(folder: Path) -> None:
    """The rename is on the disk, too. Where a folder cannot be opened there is nothing to do."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _refused(path: Path, error: OSError | RuntimeError) -> ConfigError:
    number = getattr(error, "errno", None)
    reason = getattr(error, "strerror", None) or str(error)
    if number in _NO_SPACE:
        hint = "free some space and start again; the old file is as it was"
    elif number in _NOT_ALLOWED:
        hint = f"make {path.parent} writable, or start in another folder"
    else:
        hint = "choose another folder"
    return ConfigError(f"{path}: cannot be written: {reason}", hint)
