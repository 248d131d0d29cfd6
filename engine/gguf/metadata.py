"""The typed key-value pairs at the front of a GGUF file.

Layout (GGUF specification in the ggml repository): key string, u32 type, value; an array is a u32
element type, a u64 count and the elements, and may hold arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from engine.errors import ModelFileError
from engine.gguf.cursor import Cursor

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
MetadataValue: TypeAlias = "bool | int | float | str | Array | list[str] | list[MetadataValue]"

BOOL, STRING, ARRAY = 7, 8, 9
# Metadata type number -> numpy dtype of one number.
NUMBER_DTYPES: Mapping[int, str] = MappingProxyType(
    {
        0: "<u1",
        1: "<i1",
        2: "<u2",
        3: "<i2",
        4: "<u4",
        5: "<i4",
        6: "<f4",
        10: "<u8",
        11: "<i8",
        12: "<f8",
    }
)
_NUMBERS = MappingProxyType(
    {
        kind: struct.Struct("<" + code)
        for kind, code in zip(NUMBER_DTYPES, "BbHhIifQqd", strict=True)
    }
)
# Nested arrays exist in the format, not in real files; the limit keeps recursion shallow.
MAX_ARRAY_DEPTH = 8
# Smallest bytes of a pair: empty key (8), type (4), one byte of value.
_SMALLEST_PAIR_BYTES = 13


def read_metadata(cursor: Cursor, count: int) -> dict[str, MetadataValue]:
    """Reads `count` pairs. Numbers and strings become Python values, numeric and bool arrays
    read-only numpy arrays, string arrays `list[str]`, arrays of arrays lists of these.

    Raises ModelFileError where the bytes make no sense.
    """
    cursor.need(_SMALLEST_PAIR_BYTES * count, f"a metadata block of {count} keys")
    found: dict[str, MetadataValue] = {}
    for index in range(count):
        key = cursor.name(f"the name of metadata key {index}")
        if key in found:
            raise _damaged(cursor, f"metadata key {key!r} stands twice")
        found[key] = _value(cursor, cursor.u32(f"the type of {key!r}"), f"{key!r}", 0)
    return found


def _value(cursor: Cursor, kind: int, what: str, depth: int) -> MetadataValue:
    if kind in _NUMBERS:
        return cursor.number(_NUMBERS[kind], what)
    if kind == STRING:
        return cursor.string(what)
    if kind == BOOL:
        return bool(_bools(cursor, 1, what)[0])
    if kind == ARRAY:
        return _array(cursor, what, depth + 1)
    raise _damaged(cursor, f"{what} has metadata type {kind}; types 0 to 12 exist")


def _array(cursor: Cursor, what: str, depth: int) -> MetadataValue:
    if depth > MAX_ARRAY_DEPTH:
        raise _damaged(cursor, f"{what} nests arrays more than {MAX_ARRAY_DEPTH} deep")
    kind = cursor.u32(f"the element type of {what}")
    count = cursor.u64(f"the length of {what}")
    if kind in NUMBER_DTYPES:
        dtype = np.dtype(NUMBER_DTYPES[kind])
        return np.frombuffer(cursor.take(count * dtype.itemsize, f"{what} ({count})"), dtype)
    if kind == STRING:
        return cursor.strings(count, what)
    if kind == BOOL:
        return _bools(cursor, count, what)
    if kind == ARRAY:
        # An inner array takes at least its element type and length.
        cursor.need(12 * count, f"{what} ({count} arrays)")
        return [_array(cursor, f"{what}[{index}]", depth + 1) for index in range(count)]
    raise _damaged(cursor, f"{what} has element type {kind}; types 0 to 12 exist")


def _bools(cursor: Cursor, count: int, what: str) -> Array:
    raw = np.frombuffer(cursor.take(count, what), np.uint8)
    if count and raw.max() > 1:
        raise _damaged(cursor, f"{what} holds the bool {raw.max()}; only 0 and 1 exist")
    return raw.view(np.bool_)


def _damaged(cursor: Cursor, message: str) -> ModelFileError:
    return ModelFileError(
        f"{cursor.path}: {message} (near byte {cursor.position})",
        hint="The file is damaged: download or convert it again.",
    )
