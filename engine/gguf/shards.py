"""Models in several files, `NAME-00001-of-00005.gguf`: finding them and checking they belong."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from engine.errors import ModelFileError
from engine.gguf.header import Header, TensorInfo
from engine.gguf.metadata import MetadataValue

_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_TOGETHER = "Put all shards of one download into one folder and do not rename them."


def shard_name(stem: str, number: int, count: int) -> str:
    """The file name of shard `number` (from 1) of `count`."""
    return f"{stem}-{number:05d}-of-{count:05d}.gguf"


def shard_numbers(name: str) -> tuple[str, int, int] | None:
    """(stem, number, count) of a shard's file name; None for any other name. Not checked."""
    match = _NAME.fullmatch(name)
    return None if match is None else (match["stem"], int(match["number"]), int(match["count"]))


def shard_paths(path: Path) -> tuple[Path, ...]:
    """All files of the model that `path` is one file of, in order; just `path` for a single file.

    Symbolic links are not followed, so that a download cache's names stay. Raises ModelFileError
    for a missing shard or a number that does not fit.
    """
    numbers = shard_numbers(path.name)
    if numbers is None:
        return (path,)
    stem, number, count = numbers
    if not 1 <= number <= count:
        raise ModelFileError(
            f"{path}: the name says shard {number} of {count}; shards count from 1",
            hint=_TOGETHER,
        )
    paths = []
    for index in range(1, count + 1):
        shard = path.with_name(shard_name(stem, index, count))
        # Unlike Path.is_file this never raises, whatever is wrong with the name.
        if not os.path.isfile(shard):
            raise ModelFileError(f"{shard}: shard {index} of {count} is missing", hint=_TOGETHER)
        paths.append(shard)
    return tuple(paths)


def join_metadata(headers: Sequence[Header]) -> dict[str, MetadataValue]:
    """The first shard's metadata and what only later shards have; all must tell one story.

    Raises ModelFileError where split numbers do not fit the names or a shard contradicts the
    others, which is how a shard of another model shows.
    """
    joined = dict(headers[0].metadata)
    for index, header in enumerate(headers):
        _check_split(header, index, len(headers))
        for key, value in header.metadata.items():
            if key != "split.no" and not _same(joined.setdefault(key, value), value):
                raise ModelFileError(
                    f"{header.path}: {key!r} differs from that of {headers[0].path.name}: this "
                    "shard belongs to another model",
                    hint=_TOGETHER,
                )
    return joined


def join_tensors(
    headers: Sequence[Header], metadata: Mapping[str, MetadataValue]
) -> dict[str, TensorInfo]:
    """The union of all tensors by name. Raises ModelFileError for duplicates, or where the number
    of tensors is not `split.tensors.count`."""
    joined: dict[str, TensorInfo] = {}
    for header in headers:
        for name, tensor in header.tensors.items():
            if name in joined:
                first = headers[joined[name].shard].path.name
                raise ModelFileError(
                    f"{header.path}: tensor {name!r} stands in {first} too", hint=_TOGETHER
                )
            joined[name] = tensor
    expected = metadata.get("split.tensors.count")
    if isinstance(expected, int) and expected != len(joined):
        raise ModelFileError(
            f"{headers[0].path}: the {len(headers)} files hold {len(joined)} tensors, but "
            f"split.tensors.count is {expected}",
            hint=_TOGETHER,
        )
    return joined


def _check_split(header: Header, index: int, count: int) -> None:
    # A file without the keys is taken at its name's word.
    said_count = header.metadata.get("split.count", count)
    said_index = header.metadata.get("split.no", index)
    if _same(said_count, 0) and count == 1:
        return
    if not _same(said_count, count) or not _same(said_index, index):
        raise ModelFileError(
            f"{header.path}: split.no is {reprlib.repr(said_index)} and split.count is "
            f"{reprlib.repr(said_count)}, but "
            f"the name says file {index} (from 0) of {count}",
            hint=_TOGETHER,
        )


def _same(a: MetadataValue, b: MetadataValue) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    # NaN equals itself here.
    return type(a) is type(b) and bool(a == b or (a != a and b != b))
