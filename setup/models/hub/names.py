"""Names that come from a server or a table, before they become paths on this disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def place_files(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Where each file of a model goes: in the repository's folders, as the hub's own tool has it.

    Where some of them already lie in `folder` itself, and none in those, all go there. Raises
    `ConfigError` as `target_path` does.
    """
    nested = {name: target_path(folder, name) for name in names}
    flat = {name: folder / path.name for name, path in nested.items()}
    side_by_side = len(set(flat.values())) == len(flat)
    if side_by_side and _some(flat) and not _some(nested):
        return flat
    return nested


def _some(places: Mapping[str, Path]) -> bool:
    return any(path.is_file() for path in places.values())


def _sound(part: str) -> bool:
    printable = part.isprintable() and not _FORBIDDEN & set(part)
    return printable and part not in (".", "..", "/") and len(part.encode()) <= 200
