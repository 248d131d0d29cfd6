"""Which files are whole: beside each stands its SHA-256, in the form of `sha256sum`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from engine.errors import ConfigError
from setup.models.disk_space import decimal_size
from setup.models.hub.files import RemoteFile
from setup.models.hub.retry import Note

_AWAY = "move it away or delete it, or download into another folder"


def mark_path(target: Path) -> Path:
    """Where the SHA-256 of `target` stands; `sha256sum -c` reads it."""
    return target.with_name(target.name + ".sha256")


def write_mark(target: Path, digest: str) -> None:
    """Says that `target` was found to have this SHA-256."""
    try:
        mark_path(target).write_text(f"{digest}  {target.name}\n", encoding="utf-8")
    except OSError:
        # A folder that cannot be written, such as a shared one: the file is hashed next time again.
        return


def is_marked(target: Path, size_bytes: int, sha256: str) -> bool:
    """True when `target` has that size and a mark of that SHA-256; nothing is hashed."""
    try:
        return target.stat().st_size == size_bytes and _read_mark(target) == sha256 != ""
    except OSError:
        return False


def is_finished(target: Path, source: RemoteFile, note: Note) -> bool:
    """True when `target` is there and whole. A file without a mark is hashed once.

    Raises `ConfigError` for a file that is no work of a download and has another content: it is
    the user's, and nothing overwrites it.
    """
    if not target.exists():
        return False
    if not target.is_file():
        raise ConfigError(f"{target}: stands where the model file belongs", _AWAY)
    size, mark = target.stat().st_size, _read_mark(target)
    if size == source.size_bytes and mark == source.sha256:
        return True
    if mark:
        note(f"{target.name}: is another version or damaged: it is downloaded anew")
        return False
    if size != source.size_bytes:
        raise ConfigError(
            f"{target}: is there with {size} bytes, but the model's file has {source.size_bytes}",
            _AWAY,
        )
    return _is_the_same(target, source, note)


def _is_the_same(target: Path, source: RemoteFile, note: Note) -> bool:
    note(f"{target.name}: is there ({decimal_size(source.size_bytes)}), its SHA-256 is checked")
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != source.sha256:
        raise ConfigError(
            f"{target}: has the SHA-256 {digest}, but the model's file has {source.sha256}", _AWAY
        )
    write_mark(target, digest)
    return True


def _read_mark(target: Path) -> str:
    try:
        words = mark_path(target).read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return ""
    return words[0] if words and len(words[0]) == 64 else ""
