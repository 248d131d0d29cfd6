"""Files through which Linux tells about itself: /proc and /sys. Read in one bounded piece."""

from __future__ import annotations

from collections.abc import Callable

Reader = Callable[[str], str]
"""The text of a file; empty when it cannot be read. Recordings stand in for it in tests."""

MOST_BYTES = 4 << 20
"""No file of interest is longer; /proc/cpuinfo of 512 processors has under 1 MiB."""

_MOST_DIGITS = 19


def read_system_file(path: str) -> str:
    """The first 4 MiB of a file as text; empty when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(MOST_BYTES).decode("utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


def whole(text: str) -> int | None:
    """The number from 0 that a text is, spaces around it allowed; None when it is none."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _MOST_DIGITS:
        return None
    return int(digits)
