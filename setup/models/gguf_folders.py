"""Finds the GGUF files in folders, and says where it could not look."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MOST_DEPTH = 6
"""Folders below the given one. A hub's cache holds its files five deep."""

_ENDINGS = (".gguf", ".gguf.part")


def gguf_files(
    folders: Iterable[Path], note: Callable[[str], None], most_depth: int = MOST_DEPTH
) -> Iterator[Path]:
    """GGUF files and their `.part` beginnings, folder by folder, in the order of names.

    Links are followed, each folder is entered once; hidden folders below the given ones are left
    out. `note` hears about folders that cannot be read or lie too deep.
    """
    walk = _Walk(note, most_depth)
    for folder in folders:
        place = Path(os.path.expanduser(folder))
        if os.path.isdir(place):
            yield from walk.folder(place, 0)
        elif os.path.isfile(place) and place.name.lower().endswith(_ENDINGS):
            yield place
        else:
            note(f"{place}: is no folder" if os.path.lexists(place) else f"{place}: does not exist")


@dataclass(slots=True)
class _Walk:
    note: Callable[[str], None]
    most_depth: int
    seen: set[tuple[int, int]] = field(default_factory=set)

    def folder(self, folder: Path, depth: int) -> Iterator[Path]:
        try:
            facts = folder.stat()
            if (facts.st_dev, facts.st_ino) in self.seen:
                return
            self.seen.add((facts.st_dev, facts.st_ino))
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            self.note(f"{folder}: cannot be read: {error.strerror or error}")
            return
        yield from (folder / entry.name for entry in entries if _is_model(entry))
        deeper = [entry for entry in entries if _is_open_folder(entry)]
        if deeper and depth == self.most_depth:
            self.note(f"{folder}: its folders are not searched, {depth} deep is the limit")
            return
        for entry in deeper:
            yield from self.folder(folder / entry.name, depth + 1)


def _is_model(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.name.lower().endswith(_ENDINGS) and entry.is_file()
    except OSError:
        return False


def _is_open_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return not entry.name.startswith(".") and entry.is_dir()
    except OSError:
        return False
