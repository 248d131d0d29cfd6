"""What the headers of a model's files say: what it is, and whether the files are whole.

Weights are not read.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelFileError
from engine.gguf.header import Header, check_extents, read_directory
from engine.gguf.shards import join_metadata, join_tensors, shard_paths

# Real headers take 11 MB.
_PART_BYTES = 32 << 20
_MOST_NAME = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeShare:
    """How much of a model's tensors, by bytes, is of one type: `share` is 0 to 1."""

    name: str
    nbytes: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """One file. `whole_bytes` is what its tensors need, 0 where its header is not readable."""

    header: Header | None
    whole_bytes: int
    fault: str
    hint: str


def read_facts(path: Path, shard: int, *, finished: bool = True) -> FileFacts:
    """The facts of one file, whatever is wrong with it; `finished` False: it may end anywhere."""
    try:
        header = _whole(path, shard) if finished else _beginning(path, shard)
        size = path.stat().st_size
    except ModelFileError as error:
        return FileFacts(header=None, whole_bytes=0, fault=error.message, hint=error.hint)
    except OSError as error:
        return FileFacts(
            header=None,
            whole_bytes=0,
            fault=f"{path}: cannot be read: {error.strerror or error}",
            hint="check the file's permissions",
        )
    whole = max((t.offset + t.nbytes for t in header.tensors.values()), default=0)
    fault, hint = _extent_fault(header, size, whole) if finished else ("", "")
    return FileFacts(header=header, whole_bytes=whole, fault=fault, hint=hint)


def join_fault(headers: Sequence[Header]) -> tuple[str, str]:
    """(fault, hint) where files that are all there, each of them sound, do not belong together."""
    try:
        shard_paths(headers[0].path)
        join_tensors(headers, join_metadata(headers))
    except ModelFileError as error:
        return error.message, error.hint
    return "", ""


def type_shares(headers: Sequence[Header]) -> tuple[TypeShare, ...]:
    """The types of all tensors, largest share first."""
    counted: Counter[str] = Counter()
    for header in headers:
        for tensor in header.tensors.values():
            counted[tensor.type.name] += tensor.nbytes
    total = counted.total()
    return tuple(
        TypeShare(name=name, nbytes=nbytes, share=nbytes / total)
        for name, nbytes in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
    )


def said(headers: Sequence[Header], key: str) -> str:
    """A text of the metadata in one line; empty where no header has it."""
    found: Mapping[str, object] = next((h.metadata for h in headers if key in h.metadata), {})
    text = found.get(key)
    if not isinstance(text, str):
        return ""
    # It comes from a file of anybody's, and a terminal obeys control characters.
    return "".join(c if c.isprintable() else " " for c in text[:_MOST_NAME]).strip()


def _whole(path: Path, shard: int) -> Header:
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            raise ModelFileError(f"{path}: the file is empty", "download it again")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read_directory(data, path, shard)


def _beginning(path: Path, shard: int) -> Header:
    # Read and not mapped: a download that starts over cuts the file under a mapping.
    with path.open("rb") as file:
        return read_directory(file.read(_PART_BYTES), path, shard)


def _extent_fault(header: Header, size: int, whole: int) -> tuple[str, str]:
    if size < whole:
        return (
            f"{header.path}: is cut off: its tensor directory says {whole} bytes, the file "
            f"has {size}",
            "the download or copy stopped early: get the file again",
        )
    try:
        check_extents(header, size)
    except ModelFileError as error:
        return error.message, error.hint
    return "", ""
