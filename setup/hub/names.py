"""Names that come from a server or a table, before they become paths on this disk."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from engine.errors import ConfigError

# A colon names a drive or a hidden stream on Windows, a backslash is its slash.
_FORBIDDEN = frozenset('\\:*?"<>|')


def target_path(folder: Path, name: str) -> Path:
    """Where file `name` of a repository goes: inside `folder`, in the folders of its name.

    Raises `ConfigError` for a name that is absolute, climbs out, or no system could store.
    """
    parts = PurePosixPath(name).parts
    sound = name and name == "/".join(parts) and all(map(_sound, parts))
    if not sound:
        raise ConfigError(
            f"file name {name[:200]!r} cannot be stored in {folder}",
            "names are relative, without '..', control characters or one of " + r'\ : * ? " < > |',
        )
    return folder.joinpath(*parts)


def _sound(part: str) -> bool:
    printable = part.isprintable() and not _FORBIDDEN & set(part)
    return printable and part not in (".", "..", "/") and len(part.encode()) <= 200
