"""Whether a download fits on its disk, told before the first byte."""

from __future__ import annotations

import shutil
from pathlib import Path

from engine.errors import ConfigError

RESERVE_BYTES = 1_000_000_000
"""What a download leaves free: a full disk stops other programs too. The original's setup asks 1 GB
beyond the download of a model that needs no second form on the disk, and none does here."""


def free_bytes(folder: Path) -> int:
    """Bytes that this user may write on the disk of `folder`, which need not exist yet.

    Raises `ConfigError` when the disk cannot be asked.
    """
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        return shutil.disk_usage(place).free
    except OSError as error:
        raise ConfigError(
            f"{place}: its disk cannot be asked: {error.strerror or error}", "choose another folder"
        ) from None


def need_space(folder: Path, left_bytes: int, free: int, reserve_bytes: int) -> None:
    """Raises `ConfigError` unless `left_bytes` fit in `free` with the reserve; 0 always fits."""
    if left_bytes == 0 or left_bytes + reserve_bytes <= free:
        return
    short = left_bytes + reserve_bytes - free
    raise ConfigError(
        f"{folder}: {decimal_size(left_bytes)} are still to be downloaded and "
        f"{decimal_size(reserve_bytes)} stay free, but the disk has {decimal_size(free)}",
        f"free {decimal_size(short)}, or choose a folder on another disk; "
        "what is there already is kept",
    )


def decimal_size(count: int) -> str:
    """A number of bytes as people read it, in decimal units: `83.6 GB`, `12 kB`."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"
