"""Reads little-endian numbers and strings of a GGUF header, never past its end."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from engine.errors import ModelFileError

# Real headers are about 11 MB (250 thousand tokens and merges). The limit bounds what a damaged
# or hostile file can make us allocate.
HEADER_LIMIT_BYTES = 256 << 20
# What the format allows for a key.
MAX_NAME_BYTES = 65535

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """A position in the header of one file. Every read checks the bytes that are left first."""

    def __init__(self, data: mmap.mmap | bytes, path: Path) -> None:
        self.data = data
        self.path = path
        self.position = 0
        self.end = min(len(data), HEADER_LIMIT_BYTES)

    def need(self, count: int, what: str) -> None:
        """Raises ModelFileError unless `count` more bytes exist."""
        left = self.end - self.position
        if count <= left:
            return
        if self.end < len(self.data):
            raise ModelFileError(
                f"{self.path}: {what} at byte {self.position} needs {count} bytes, but a header "
                f"may take {HEADER_LIMIT_BYTES} bytes and {left} of them are left",
                hint="The file is damaged: download or convert it again.",
            )
        raise ModelFileError(
            f"{self.path}: the file ends inside its header: {what} at byte {self.position} needs "
            f"{count} bytes, {left} are left of {len(self.data)}",
            hint="The file is damaged or its download stopped early: get it again.",
        )

    def number(self, form: struct.Struct, what: str) -> int | float:
        self.need(form.size, what)
        (value,) = form.unpack_from(self.data, self.position)
        self.position += form.size
        assert isinstance(value, int | float)
        return value

    def u32(self, what: str) -> int:
        return int(self.number(_U32, what))

    def u64(self, what: str) -> int:
        return int(self.number(_U64, what))

    def take(self, count: int, what: str) -> bytes:
        self.need(count, what)
        start = self.position
        self.position += count
        return self.data[start : self.position]

    def name(self, what: str) -> str:
        """A string short enough for a message about it."""
        return self.string(what, MAX_NAME_BYTES)

    def string(self, what: str, limit: int = HEADER_LIMIT_BYTES) -> str:
        """A 64-bit length, then that many bytes of UTF-8."""
        length = self.u64(f"the length of {what}")
        if length > limit:
            raise ModelFileError(
                f"{self.path}: {what} at byte {self.position} has {length} bytes; at most {limit} "
                "are possible",
                hint="The file is damaged: download or convert it again.",
            )
        start = self.position
        raw = self.take(length, what)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise not_utf8(self.path, what, start + error.start) from None

    def strings(self, count: int, what: str) -> list[str]:
        """`count` strings; a plain loop over local names, as a vocabulary has 250 thousand."""
        self.need(8 * count, f"{what} ({count} strings)")
        data, position, end, length_at = self.data, self.position, self.end, _U64.unpack_from
        found: list[str] = []
        for _ in range(count):
            start = position + 8
            if start > end:
                break
            position = start + length_at(data, start - 8)[0]
            if position > end:
                break
            try:
                found.append(data[start:position].decode())
            except UnicodeDecodeError as error:
                raise not_utf8(self.path, what, start + error.start) from None
        if len(found) < count:
            self.position = min(start, end)
            self.need(position - self.position + 1, f"string {len(found)} of {what}")
        self.position = position
        return found


def not_utf8(path: Path, what: str, at: int) -> ModelFileError:
    return ModelFileError(
        f"{path}: {what} is not valid UTF-8 at byte {at}",
        hint="The file is damaged: download or convert it again.",
    )
