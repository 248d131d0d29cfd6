"""The first bytes of a file that is being downloaded, kept so that a later run can go on."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from setup.models.hub.files import RemoteFile

_MOST_VALIDATOR = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PartNotes:
    """Which content a `.part` is the beginning of. `validator`: the server's ETag or date."""

    sha256: str
    size_bytes: int
    validator: str


def part_path(target: Path) -> Path:
    """Where the bytes of `target` are until it is whole."""
    return target.with_name(target.name + ".part")


def notes_path(target: Path) -> Path:
    """Where it stands what the `.part` of `target` is the beginning of."""
    return target.with_name(target.name + ".part.json")


def kept_bytes(target: Path, source: RemoteFile) -> int:
    """Bytes of `target` that a download of `source` need not get again."""
    path, notes = part_path(target), _read_notes(target)
    if notes is None or not path.is_file():
        return 0
    same = (notes.sha256, notes.size_bytes) == (source.sha256, source.size_bytes)
    size = path.stat().st_size
    return size if same and size <= source.size_bytes else 0


def usable_validator(text: str) -> str:
    """`text` where it may become a header of a request; empty for anything else."""
    text = text.strip()
    sound = text.isascii() and text.isprintable() and len(text) <= _MOST_VALIDATOR
    return text if sound else ""


class PartFile:
    """The open `.part` of `target`, with the hash of its bytes so far. A context manager.

    A small file beside it holds its `PartNotes`, so that it is never continued with another
    content; bytes of unknown origin are thrown away. Raises OSError where the disk does.
    """

    def __init__(self, target: Path, source: RemoteFile) -> None:
        self._target = target
        self._source = source
        self.size = kept_bytes(target, source)
        notes = _read_notes(target)
        self.validator = notes.validator if self.size and notes else ""
        part_path(target).parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = part_path(target).open("r+b" if self.size else "w+b")
        self._hash = hashlib.file_digest(self._file, "sha256")
        self._file.seek(self.size)

    def append(self, data: bytes) -> None:
        """Writes the next bytes."""
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)

    def restart(self, validator: str) -> None:
        """Throws the bytes away; what follows is the content that `validator` stands for."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self.size = 0
        self.validator = validator
        notes = PartNotes(
            sha256=self._source.sha256, size_bytes=self._source.size_bytes, validator=validator
        )
        notes_path(self._target).write_text(json.dumps(asdict(notes)), encoding="utf-8")

    def digest(self) -> str:
        """The SHA-256 of the bytes so far, in hexadecimal digits."""
        return self._hash.hexdigest()

    def finish(self) -> None:
        """Gives the file its name; one of that name before it goes."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        part_path(self._target).replace(self._target)
        notes_path(self._target).unlink(missing_ok=True)

    def drop(self) -> None:
        """Deletes the bytes."""
        self._file.close()
        part_path(self._target).unlink(missing_ok=True)
        notes_path(self._target).unlink(missing_ok=True)

    def __enter__(self) -> PartFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def _read_notes(target: Path) -> PartNotes | None:
    """The notes beside the `.part`; None where there are none of use."""
    try:
        notes = PartNotes(**json.loads(notes_path(target).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    texts = isinstance(notes.sha256, str) and isinstance(notes.validator, str)
    return notes if texts and notes.validator == usable_validator(notes.validator) else None
