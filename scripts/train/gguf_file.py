"""Writes a GGUF v3 file from typed metadata and packed tensors; needs only numpy."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scripts.train.quantise import TYPE_IDS

ALIGNMENT = 32
KINDS = {
    "u16": (2, "<H"),
    "u32": (4, "<I"),
    "i32": (5, "<i"),
    "f32": (6, "<f"),
    "bool": (7, "<?"),
    "str": (8, ""),
    "u64": (10, "<Q"),
}
ARRAY = 9
Value = tuple[str, "int | float | str | bool | Sequence[int] | Sequence[str]"]
Packed = tuple[str, tuple[int, ...], NDArray[np.uint8]]  # type name, numpy shape, bytes


def write_gguf(path: Path, metadata: Mapping[str, Value], tensors: Mapping[str, Packed]) -> None:
    """metadata: key to (kind, value), a list value makes an array; tensors in file order."""
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, (kind, value) in metadata.items():
        head += [_text(key), _value(kind, value)]
    offset = 0
    for name, (type_name, shape, data) in tensors.items():
        head.append(_text(name))
        head.append(struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape)))
        head.append(struct.pack("<IQ", TYPE_IDS[type_name], offset))
        offset += _padded(data.nbytes)
    with path.open("wb") as file:
        start = b"".join(head)
        file.write(start.ljust(_padded(len(start)), b"\0"))
        for _, _, data in tensors.values():
            file.write(data.tobytes().ljust(_padded(data.nbytes), b"\0"))


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind: str, value: object) -> bytes:
    number, _ = KINDS[kind]
    if isinstance(value, list | tuple):
        items = b"".join(_item(kind, item) for item in value)
        return struct.pack("<IIQ", ARRAY, number, len(value)) + items
    return struct.pack("<I", number) + _item(kind, value)


def _item(kind: str, value: object) -> bytes:
    return _text(str(value)) if kind == "str" else struct.pack(KINDS[kind][1], value)
