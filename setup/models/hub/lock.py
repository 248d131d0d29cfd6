"""Keeps two setups from writing the same file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engine.errors import ConfigError


def lock_path(target: Path) -> Path:
    """The lock of the download of `target`."""
    return target.with_name(target.name + ".part.lock")


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Holds the lock of `target`'s download. It ends with the process, however that ends.

    Raises `ConfigError` when another process holds it, OSError where the disk does.
    """
    path = lock_path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    number = _take(path)
    try:
        os.ftruncate(number, 0)
        os.write(number, str(os.getpid()).encode())
        yield
    finally:
        # Deleted while it is held: who opened it before finds out that it is no longer this path.
        with suppress(OSError):
            path.unlink()
        os.close(number)


def _take(path: Path) -> int:
    """The descriptor of the locked file at `path`."""
    while True:
        number = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            held = _lock(number)
            if held and _is_at(number, path):
                return number
        except BaseException:
            os.close(number)
            raise
        owner = "" if held else os.read(number, 20).decode("ascii", "replace").strip()
        os.close(number)
        if not held:
            raise ConfigError(
                f"{path.name.removesuffix('.part.lock')}: another setup downloads it into "
                f"{path.parent}" + (f" (process {owner})" if owner else ""),
                "wait for it, or end it and run the same command again",
            )


def _is_at(number: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(number), path.stat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _lock(number: int) -> bool:
        # A byte behind the text, which others may then still read.
        os.lseek(number, 1000, os.SEEK_SET)
        try:
            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(number, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _lock(number: int) -> bool:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # Some network disks have no locks: going on is better than refusing them.
            return True
        return True
