"""Writes GGUF version 3: metadata of every type, aligned tensors of every type, optional shards."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from engine.gguf.header import DEFAULT_ALIGNMENT, MAGIC, VERSION
from engine.gguf.metadata import ARRAY, BOOL, NUMBER_DTYPES, STRING
from engine.gguf.shards import shard_name
from engine.gguf.types import QuantType

# Type, shape in numpy order, and the bytes of the tensor in any shape.
TensorData: TypeAlias = tuple[QuantType, tuple[int, ...], np.ndarray[Any, np.dtype[np.uint8]]]

_KIND_OF_DTYPE = {np.dtype(dtype): kind for kind, dtype in NUMBER_DTYPES.items()}
_KIND_OF_DTYPE[np.dtype(np.bool_)] = BOOL


def write_gguf(
    path: str | Path, metadata: Mapping[str, Any], tensors: Mapping[str, TensorData]
) -> None:
    """Writes one file.

    Metadata values: str; bool; int (the smallest of u32, i32, u64, i64 that holds it); float (f32);
    a numpy scalar or array (its own type); a list of strings; a list of ints or floats; a list of
    lists or arrays. The key general.alignment (default 32) places the tensors. Raises TypeError or
    ValueError for what the format cannot hold.
    """
    alignment = int(metadata.get("general.alignment", DEFAULT_ALIGNMENT))
    head = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    head += [_string(key) + _typed(value) for key, value in metadata.items()]
    offset = 0
    for name, (kind, shape, raw) in tensors.items():
        nbytes = prod(shape[:-1]) * kind.row_bytes(shape[-1])
        if raw.nbytes != nbytes:
            raise ValueError(f"{name}: {raw.nbytes} bytes for {kind.name} {shape}, not {nbytes}")
        ne = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head.append(_string(name) + ne + struct.pack("<IQ", kind.id, offset))
        offset += -(-nbytes // alignment) * alignment
    with Path(path).open("wb") as file:
        file.write(b"".join(head))
        for _, _, raw in tensors.values():
            _pad(file, alignment)
            file.write(np.ascontiguousarray(raw).data)
        _pad(file, alignment)


def write_shards(
    path: str | Path, metadata: Mapping[str, Any], shards: Sequence[Mapping[str, TensorData]]
) -> tuple[Path, ...]:
    """Writes `path` (NAME.gguf) as NAME-00001-of-0000N.gguf, ...; returns the files' paths.

    Shard i holds the tensors `shards[i]`, which may be none; the first also holds the metadata.
    """
    path = Path(path)
    total = sum(len(shard) for shard in shards)
    paths = []
    for index, shard in enumerate(shards):
        numbers = {
            "split.no": np.uint16(index),
            "split.count": np.uint16(len(shards)),
            "split.tensors.count": np.int32(total),
        }
        paths.append(path.with_name(shard_name(path.stem, index + 1, len(shards))))
        alignment = {k: v for k, v in metadata.items() if k == "general.alignment"}
        write_gguf(paths[-1], {**(alignment if index else metadata), **numbers}, shard)
    return tuple(paths)


def _pad(file: BinaryIO, alignment: int) -> None:
    file.write(bytes(-file.tell() % alignment))


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _typed(value: Any) -> bytes:
    """The u32 type of a value, then the value."""
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
        return struct.pack("<I", ARRAY) + _array(value)
    number = _number(value)
    return struct.pack("<I", _kind(number.dtype)) + number.tobytes()


def _array(values: Any) -> bytes:
    """The element type, the count, the elements."""
    if not isinstance(values, np.ndarray):
        values = list(values)
        if all(isinstance(value, str) for value in values):
            head = struct.pack("<IQ", STRING, len(values))
            return head + b"".join(_string(value) for value in values)
        if all(isinstance(value, list | tuple | np.ndarray) for value in values):
            head = struct.pack("<IQ", ARRAY, len(values))
            return head + b"".join(_array(value) for value in values)
        values = _number(values)
    if values.ndim > 1:
        return _array(list(values))
    elements: bytes = values.tobytes()
    return struct.pack("<IQ", _kind(values.dtype), len(values)) + elements


def _number(value: Any) -> np.ndarray[Any, Any]:
    """A numpy array of the type that a plain Python value, or a list of them, is written as."""
    array = np.asarray(value)
    if not isinstance(value, np.ndarray | np.generic):
        if array.dtype.kind == "f":
            array = array.astype(np.float32)
        elif array.dtype.kind in "iu":
            low, high = array.min(), array.max()
            fits = (t for t in ("<u4", "<i4", "<u8", "<i8") if _holds(t, int(low), int(high)))
            array = array.astype(next(fits))
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _holds(dtype: str, low: int, high: int) -> bool:
    info = np.iinfo(dtype)
    return int(info.min) <= low and high <= int(info.max)


def _kind(dtype: np.dtype[Any]) -> int:
    if dtype not in _KIND_OF_DTYPE:
        raise TypeError(f"GGUF metadata cannot hold values of type {dtype}")
    return _KIND_OF_DTYPE[dtype]
