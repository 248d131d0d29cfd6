"""Downloads a model of the catalogue from a hub, and goes on where an earlier run stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import httpx

from engine.errors import ConfigError
from engine.gguf.header import MAGIC
from setup.models.catalogue import ModelRow
from setup.models.disk_space import RESERVE_BYTES, free_bytes, need_space
from setup.models.hub.client import open_client, read_endpoint
from setup.models.hub.files import Hub, RemoteFile, need_hashes
from setup.models.hub.lock import locked
from setup.models.hub.marks import is_finished, is_marked, mark_path, write_mark
from setup.models.hub.names import place_files
from setup.models.hub.part_file import kept_bytes, part_path
from setup.models.hub.retry import Limits, Note, Pace
from setup.models.hub.transfer import Transfer


class Progress(Protocol):
    """Hears how far a download is, after every piece of some 64 kB."""

    def __call__(self, done_bytes: int, total_bytes: int, file: str) -> None:
        """`done_bytes` of the whole model's `total_bytes` are there; `file` is being got."""


def plan_download(row: ModelRow, folder: Path) -> int:
    """Bytes of `row` that are not in `folder` yet, by the catalogue's sizes; asks nobody.

    Raises `ConfigError` for a row without files.
    """
    targets = _targets(row, folder)
    there = {file.path: _bytes_there(targets[file.path]) for file in row.files}
    if not all(file.size_bytes for file in row.files):
        return max(0, round(row.download_gb * 1e9) - sum(there.values()))
    return sum(max(0, file.size_bytes - there[file.path]) for file in row.files)


def download(
    row: ModelRow,
    folder: Path,
    environment: Mapping[str, str],
    progress: Progress,
    *,
    note: Note,
    limits: Limits | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    free: Callable[[Path], int] = free_bytes,
    connect: Callable[[Limits], httpx.Client] = open_client,
) -> Path:
    """Makes all files of `row` stand in `folder`, whole and checked; returns the first one's path.

    `environment` may hold HF_ENDPOINT (a mirror) and HF_TOKEN. `note` hears sentences on the way.
    Whatever stops it, Ctrl-C too, what came so far stays in `.part` files for the next run.

    Raises `ConfigError`: no such files, no permission, too little room, another setup at work, a
    server that fails for too long, a row without sizes or SHA-256, a file with others.
    """
    targets = _targets(row, folder)
    need_hashes(row)
    if all(is_marked(targets[f.path], f.size_bytes, f.sha256) for f in row.files):
        return _checked(targets)
    pace = Pace(limits=limits or Limits(), sleep=sleep, clock=clock, note=note)
    endpoint = read_endpoint(environment)
    with connect(pace.limits) as client, ExitStack() as locks:
        hub = Hub(endpoint=endpoint, client=client, pace=pace)
        files = hub.files(row)
        try:
            left = [f for f in files if not is_finished(targets[f.path], f, note)]
            for file in left:
                locks.enter_context(locked(targets[file.path]))
            _need_space(left, targets, folder, free)
            _get(hub, files, {file: targets[file.path] for file in left}, progress)
        except OSError as error:
            raise _disk_error(folder, error) from None
    return _checked(targets)


def _need_space(
    left: list[RemoteFile],
    targets: Mapping[str, Path],
    folder: Path,
    free: Callable[[Path], int],
) -> None:
    missing = sum(f.size_bytes - kept_bytes(targets[f.path], f) for f in left)
    need_space(folder, missing, free(folder), RESERVE_BYTES)


def _get(
    hub: Hub,
    files: tuple[RemoteFile, ...],
    left: Mapping[RemoteFile, Path],
    progress: Progress,
) -> None:
    total, before = sum(file.size_bytes for file in files), 0
    for file in files:

        def told(done: int, before: int = before, name: str = file.name) -> None:
            progress(before + done, total, name)

        target = left.get(file)
        # Another setup may have finished it while this one waited for the hub.
        if target is not None and not is_marked(target, file.size_bytes, file.sha256):
            transfer = Transfer(
                source=file,
                endpoint=hub.endpoint,
                client=hub.client,
                pace=hub.pace,
                progress=told,
            )
            write_mark(target, transfer.run(target))
        told(file.size_bytes)
        before += file.size_bytes


def _targets(row: ModelRow, folder: Path) -> dict[str, Path]:
    if not row.files:
        raise ConfigError(f"{row.key}: the catalogue names no files", "name a GGUF with --model")
    return place_files(folder, [file.path for file in row.files])


def _checked(targets: Mapping[str, Path]) -> Path:
    """The first file. All must begin as models do: a mark tells of the past, not of today."""
    for path in targets.values():
        try:
            with path.open("rb") as file:
                head = file.read(len(MAGIC))
        except OSError as error:
            raise _disk_error(path, error) from None
        if head != MAGIC:
            raise ConfigError(
                f"{path}: is not a GGUF file: it starts with {head!r} instead of {MAGIC!r}",
                f"delete it and {mark_path(path).name}, and run the same command again",
            )
    return next(iter(targets.values()))


def _bytes_there(target: Path) -> int:
    for path in (target, part_path(target)):
        if path.is_file():
            return path.stat().st_size
    return 0


def _disk_error(folder: Path, error: OSError) -> ConfigError:
    place = error.filename or folder
    return ConfigError(
        f"{place}: cannot be written or read: {error.strerror or error}",
        "free some room or choose another folder; what is there already is kept",
    )
