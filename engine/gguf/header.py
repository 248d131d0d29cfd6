"""The header of one GGUF file: version, metadata, and where each tensor's bytes lie."""

from __future__ import annotations

import mmap
import reprlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf.cursor import Cursor
from engine.gguf.metadata import MetadataValue, read_metadata
from engine.gguf.types import QUANT_TYPES, QuantType

MAGIC = b"GGUF"
VERSION = 3
# Version 2 has the same little-endian layout; version 1 had 32-bit lengths.
SUPPORTED_VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
MAX_DIMENSIONS = 4
# Smallest bytes of a tensor entry: empty name (8), dimension count (4), type (4), offset (8).
_SMALLEST_ENTRY_BYTES = 24
_AGAIN = "The file is damaged: download or convert it again."
# First bytes of files that people hand over by mistake.
_OTHER_FILES = (
    (b"version https://git-lfs", "It is a Git LFS pointer: run `git lfs pull` to get the model."),
    (b"PK\x03\x04", "It is a zip archive or a PyTorch checkpoint: unpack or convert it first."),
    (b"<!DOCTYPE", "It is a web page: the download saved an error page instead of the model."),
    (b"<html", "It is a web page: the download saved an error page instead of the model."),
    (b"tjgg", "It is a model of the time before GGUF: convert it again."),
    (b"lmgg", "It is a model of the time before GGUF: convert it again."),
    (b"FUGG", "It is a GGUF file with its bytes swapped: convert it on a little-endian machine."),
)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. `shape` has numpy order, slowest first: [N, K] for a matrix, [E, N, K]
    for experts. `offset` counts bytes from the start of file number `shard`."""

    name: str
    type: QuantType
    shape: tuple[int, ...]
    shard: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What one file says about itself."""

    path: Path
    version: int
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, TensorInfo]


def read_header(data: mmap.mmap | bytes, path: Path, shard: int) -> Header:
    """Reads the header of the whole file `data` and checks every tensor against its size.

    Raises what `read_directory` and `check_extents` raise.
    """
    header = read_directory(data, path, shard)
    check_extents(header, len(data))
    return header


def read_directory(data: mmap.mmap | bytes, path: Path, shard: int) -> Header:
    """Reads a header alone: `data` may be a file of which only the beginning is there.

    Raises ModelFileError for a damaged file, UnsupportedModelError for a version or a tensor type
    that this reader does not know.
    """
    cursor = Cursor(data, path)
    version = _version(cursor)
    tensor_count = cursor.u64("the tensor count")
    metadata = read_metadata(cursor, cursor.u64("the metadata count"))
    alignment = _alignment(path, metadata)
    cursor.need(_SMALLEST_ENTRY_BYTES * tensor_count, f"a list of {tensor_count} tensors")
    entries = [_entry(cursor, index) for index in range(tensor_count)]
    start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, kind, shape, offset in entries:
        if name in tensors:
            raise ModelFileError(f"{path}: tensor {name!r} stands twice", hint=_AGAIN)
        _check_alignment(path, name, offset, alignment)
        nbytes = prod(shape[:-1]) * kind.row_bytes(shape[-1])
        tensors[name] = TensorInfo(name, kind, shape, shard, start + offset, nbytes)
    return Header(path, version, metadata, tensors)


def _version(cursor: Cursor) -> int:
    head = cursor.data[:32]
    if head[:4] != MAGIC:
        hint = next((text for first, text in _OTHER_FILES if head.startswith(first)), "")
        raise ModelFileError(
            f"{cursor.path}: not a GGUF file: it starts with {head[:4]!r} instead of {MAGIC!r}",
            hint=hint or "Give the path of a .gguf model file.",
        )
    cursor.position = 4
    version = cursor.u32("the version")
    if version in SUPPORTED_VERSIONS:
        return version
    swapped = int.from_bytes(struct.pack(">I", version), "little")
    if swapped <= VERSION and version != 0:
        raise UnsupportedModelError(
            f"{cursor.path}: a big-endian GGUF file (version {swapped}); only little-endian files "
            "can be read",
            hint="Convert the model again on a little-endian machine.",
        )
    raise UnsupportedModelError(
        f"{cursor.path}: GGUF version {version}; versions 2 and 3 can be read",
        hint="Convert the model again with a current llama.cpp."
        if version < VERSION
        else "The file is damaged or newer than this program: look for an update.",
    )


def _alignment(path: Path, metadata: Mapping[str, MetadataValue]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if isinstance(value, int) and 0 < value <= MAX_ALIGNMENT and value & (value - 1) == 0:
        return int(value)
    raise ModelFileError(
        f"{path}: general.alignment is {reprlib.repr(value)}; it must be a power of two up to "
        f"{MAX_ALIGNMENT}",
        hint=_AGAIN,
    )


def _entry(cursor: Cursor, index: int) -> tuple[str, QuantType, tuple[int, ...], int]:
    """One entry of the tensor list: name, type, shape in numpy order, offset into the data."""
    name = cursor.name(f"the name of tensor {index}")
    dimensions = cursor.u32(f"the dimension count of {name!r}")
    if dimensions > MAX_DIMENSIONS:
        raise ModelFileError(
            f"{cursor.path}: tensor {name!r} has {dimensions} dimensions; at most "
            f"{MAX_DIMENSIONS} exist",
            hint=_AGAIN,
        )
    ne = [cursor.u64(f"the shape of {name!r}") for _ in range(dimensions)]
    shape = tuple(reversed(ne)) or (1,)
    kind = _type(cursor, name, cursor.u32(f"the type of {name!r}"))
    if 0 in shape or shape[-1] % kind.block_elements:
        raise ModelFileError(
            f"{cursor.path}: tensor {name!r} of type {kind.name} has the shape {list(shape)}; "
            f"no dimension may be 0 and rows must be multiples of {kind.block_elements}",
            hint=_AGAIN,
        )
    return name, kind, shape, cursor.u64(f"the offset of {name!r}")


def _type(cursor: Cursor, name: str, number: int) -> QuantType:
    if number in QUANT_TYPES:
        return QUANT_TYPES[number]
    raise UnsupportedModelError(
        f"{cursor.path}: tensor {name!r} has the type {number}, which this program does not know",
        hint="Use a file in one of these types: " + ", ".join(t.name for t in QUANT_TYPES.values()),
    )


def _check_alignment(path: Path, name: str, offset: int, alignment: int) -> None:
    if offset % alignment:
        raise ModelFileError(
            f"{path}: tensor {name!r} is misaligned: its offset {offset} is not a multiple of "
            f"{alignment}",
            hint=_AGAIN,
        )


def check_extents(header: Header, size: int) -> None:
    """Raises ModelFileError where a tensor reaches past `size`, the file's bytes, or into the next
    tensor."""
    path, end, last = header.path, 0, ""
    for tensor in sorted(header.tensors.values(), key=lambda tensor: tensor.offset):
        if tensor.offset < end:
            raise ModelFileError(
                f"{path}: tensor {tensor.name!r} starts at byte {tensor.offset}, but {last!r} "
                f"reaches to byte {end}",
                hint=_AGAIN,
            )
        end, last = tensor.offset + tensor.nbytes, tensor.name
        if end > size:
            raise ModelFileError(
                f"{path}: tensor {last!r} takes bytes {tensor.offset} to {end}, but the file has "
                f"{size}",
                hint="The file is damaged or its download stopped early: get it again.",
            )
