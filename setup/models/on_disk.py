"""The models in given folders: what each is, and whether it is whole, told before loading."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.gguf.shards import shard_name, shard_numbers
from setup.models.catalogue import ModelRow, catalogue
from setup.models.disk_space import decimal_size
from setup.models.gguf_facts import FileFacts, TypeShare, join_fault, read_facts, said, type_shares
from setup.models.gguf_folders import gguf_files

_PART = ".part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A file whose download stopped. `whole_bytes`: by the catalogue, else by its header;
    0 where neither tells."""

    path: Path
    size_bytes: int
    whole_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model, in one file or in shards, with what its headers say."""

    path: Path
    """What `--model` takes: the first file, which may not be there yet."""
    name: str
    architecture: str
    """Empty where no header could be read."""
    files: tuple[Path, ...]
    size_bytes: int
    """Of what is on the disk, unfinished files too."""
    types: tuple[TypeShare, ...]
    """Of the files whose header could be read."""
    row: ModelRow | None
    """The model of the catalogue whose files these are, by name, and by size when all are there."""
    missing: tuple[str, ...]
    """Names of shards that are not there at all."""
    unfinished: tuple[Unfinished, ...]
    fault: str
    """What is wrong with files that are there."""
    hint: str

    @property
    def complete(self) -> bool:
        """True when nothing keeps it from being loaded, as far as headers tell."""
        return not (self.missing or self.unfinished or self.fault)

    @property
    def state(self) -> str:
        """Complete, or in what way not, in one line."""
        if self.complete:
            return "complete"
        return "; ".join(filter(None, (self.fault, _told(self.unfinished), _named(self.missing))))


def find_models(
    folders: Iterable[Path],
    note: Callable[[str], None] = lambda text: None,
    rows: Sequence[ModelRow] | None = None,
) -> tuple[FoundModel, ...]:
    """The models in `folders` and the folders below, in order of place and name; reads headers.

    Never raises for what it finds: damaged and incomplete models carry their fault, and `note`
    hears about folders that cannot be read. A model that links reach twice is there once. `rows`:
    the catalogue to match with, else the one that comes with Strata.
    """
    known = catalogue() if rows is None else rows
    groups: dict[tuple[Path, ...], set[Path]] = {}
    for path in gguf_files(folders, note):
        groups.setdefault(_wanted(path), set()).add(path)
    found: dict[object, FoundModel] = {}
    for wanted, there in groups.items():
        identity = _identity(there)
        if identity not in found:
            found[identity] = _look(wanted, there, known)
    return tuple(found.values())


def _wanted(path: Path) -> tuple[Path, ...]:
    """All files of the model that this one, or this `.part`, belongs to."""
    target = path.with_name(path.name.removesuffix(_PART))
    numbers = shard_numbers(target.name)
    if numbers is None or not 1 <= numbers[1] <= numbers[2]:
        return (target,)
    stem, _, count = numbers
    return tuple(target.with_name(shard_name(stem, i, count)) for i in range(1, count + 1))


def _identity(there: Iterable[Path]) -> object:
    """The same for two names of the same files."""
    try:
        return frozenset((f.st_dev, f.st_ino) for f in map(os.stat, there))
    except OSError:
        return frozenset(there)


def _look(wanted: Sequence[Path], there: set[Path], rows: Sequence[ModelRow]) -> FoundModel:
    files = tuple(path for path in wanted if path in there)
    parts = {p: p.with_name(p.name + _PART) for p in wanted if p not in there}
    parts = {path: part for path, part in parts.items() if part in there}
    facts = [read_facts(path, wanted.index(path)) for path in files]
    begun = [read_facts(part, wanted.index(p), finished=False) for p, part in parts.items()]
    headers = [f.header for f in (*facts, *begun) if f.header is not None]
    missing = tuple(p.name for p in wanted if p not in there and p not in parts)
    fault, hint = _fault(facts, joined=len(files) == len(wanted))
    whole = not (fault or missing or parts)
    row = _row([path.name for path in wanted], list(map(_size, files)) if whole else [], rows)
    return FoundModel(
        path=wanted[0],
        name=said(headers, "general.name") or _stem(wanted[0]),
        architecture=said(headers, "general.architecture"),
        files=files,
        size_bytes=sum(map(_size, (*files, *parts.values()))),
        types=type_shares(headers),
        row=row,
        missing=missing,
        unfinished=_unfinished(parts, begun, row),
        fault=fault,
        hint=hint,
    )


def _unfinished(
    parts: Mapping[Path, Path], begun: Sequence[FileFacts], row: ModelRow | None
) -> tuple[Unfinished, ...]:
    sizes = {file.name: file.size_bytes for file in row.files} if row else {}
    return tuple(
        Unfinished(
            path=part,
            size_bytes=_size(part),
            whole_bytes=sizes.get(path.name) or facts.whole_bytes,
        )
        for (path, part), facts in zip(parts.items(), begun, strict=True)
    )


def _fault(facts: Sequence[FileFacts], joined: bool) -> tuple[str, str]:
    """The first fault of a file; else whether the files, if all are there, belong together."""
    for file in facts:
        if file.fault:
            return file.fault, file.hint
    return join_fault([f.header for f in facts if f.header]) if joined else ("", "")


def _row(names: Sequence[str], sizes: Sequence[int], rows: Sequence[ModelRow]) -> ModelRow | None:
    """The row with these files; where `sizes` are given they must be its sizes, too."""
    for row in rows:
        if sorted(file.name for file in row.files) != sorted(names):
            continue
        size_of = {file.name: file.size_bytes for file in row.files}
        if all(size_of[n] in (0, s) for n, s in zip(names, sizes, strict=False)):
            return row
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _stem(path: Path) -> str:
    numbers = shard_numbers(path.name)
    return numbers[0] if numbers else path.stem


def _told(unfinished: Sequence[Unfinished]) -> str:
    return "; ".join(
        f"{file.path.name}: unfinished download, {decimal_size(file.size_bytes)}"
        + (f" of {decimal_size(file.whole_bytes)}" if file.whole_bytes else "")
        for file in unfinished
    )


def _named(missing: Sequence[str]) -> str:
    if not missing:
        return ""
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return f"missing: {', '.join(missing[:3])}{more}"
