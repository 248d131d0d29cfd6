"""What control groups (cgroups, version 1 and 2) allow this process: memory, swap and processors.

A group's limit holds for everything inside it, so the limits of a group and of all groups around it
count. Sources: cgroups(7), the kernel's cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from engine.system_files import Reader, whole

_MOST_LEVELS = 32
# Version 1 writes "no limit" as the most bytes that pages can count: just below 2^63.
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class Group:
    """One group, by the folder of its files."""

    folder: str
    version: int


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """What one group may hold, and what it holds that the kernel cannot drop, in bytes."""

    limit_bytes: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class _Mount:
    version: int
    root: str
    point: str
    options: frozenset[str]


def memory_limits(read: Reader) -> tuple[MemoryLimit, ...]:
    """The memory limits around this process, innermost first; groups without one are left out."""
    found = (_memory_limit(read, group) for group in _groups(read, "memory"))
    return tuple(limit for limit in found if limit is not None)


def swap_limit(read: Reader) -> int | None:
    """Swap in bytes that the groups allow; None: no limit."""
    found = (_swap_limit(read, group) for group in _groups(read, "memory"))
    return min((limit for limit in found if limit is not None), default=None)


def cpu_limit(read: Reader, processors: int) -> float:
    """What the groups allow of `processors`: 2.5 for 250 ms in every 100 ms; 0: all of them."""
    found = (_cpu_limit(read, group) for group in _groups(read, "cpu"))
    lowest = min((limit for limit in found if limit is not None), default=0.0)
    return lowest if lowest < processors else 0.0


def _memory_limit(read: Reader, group: Group) -> MemoryLimit | None:
    # Above `memory.high` a group is not killed but throttled to a crawl: as good as a limit.
    names = ("memory.limit_in_bytes",) if group.version == 1 else ("memory.max", "memory.high")
    limits = [n for name in names if (n := whole(read(f"{group.folder}/{name}"))) is not None]
    if not limits:
        return None
    usage = "memory.usage_in_bytes" if group.version == 1 else "memory.current"
    used = whole(read(f"{group.folder}/{usage}")) or 0
    return MemoryLimit(min(limits), max(0, used - _cached(read, group)))


def _cached(read: Reader, group: Group) -> int:
    """Pages of files, which the kernel drops when memory is short, as MemAvailable counts them."""
    prefix = "total_" if group.version == 1 else ""
    stat = dict(re.findall(r"^(\w+) (\d{1,19})$", read(f"{group.folder}/memory.stat"), re.M | re.A))
    return sum(int(stat.get(f"{prefix}{name}", 0)) for name in ("active_file", "inactive_file"))


def _swap_limit(read: Reader, group: Group) -> int | None:
    if group.version == 2:
        return whole(read(f"{group.folder}/memory.swap.max"))
    both = whole(read(f"{group.folder}/memory.memsw.limit_in_bytes"))
    memory = whole(read(f"{group.folder}/memory.limit_in_bytes"))
    if both is None or memory is None or both >= _NO_LIMIT:
        return None
    # Version 1 limits memory and swap together.
    return max(0, both - memory)


def _cpu_limit(read: Reader, group: Group) -> float | None:
    if group.version == 2:
        words = read(f"{group.folder}/cpu.max").split()
    else:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [read(f"{group.folder}/{name}").strip() for name in names]
    if len(words) != 2:
        return None
    quota, period = whole(words[0]), whole(words[1])
    return quota / period if quota and period else None


def _groups(read: Reader, controller: str) -> Iterator[Group]:
    """This process's group and all around it, for one controller, in both versions."""
    paths = _paths(read("/proc/self/cgroup"), controller)
    mounts = _mounts(read("/proc/self/mountinfo"))
    for version, standard in ((2, "/sys/fs/cgroup"), (1, f"/sys/fs/cgroup/{controller}")):
        mount = next(
            (m for m in mounts if m.version == version and _serves(m, controller)),
            _Mount(version, "/", standard, frozenset()),
        )
        for folder in _levels(mount, paths.get(version, "/")):
            yield Group(folder, version)


def _serves(mount: _Mount, controller: str) -> bool:
    return mount.version == 2 or controller in mount.options


def _paths(text: str, controller: str) -> dict[int, str]:
    """Where the process is, by version. A line is `hierarchy:controllers:path`."""
    found: dict[int, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found[2] = path
        elif controller in controllers.split(","):
            found[1] = path
    return found


def _mounts(text: str) -> list[_Mount]:
    """The mounted hierarchies. A line is `id parent dev root point ... - type source options`."""
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if len(place) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if kind[0] == "cgroup2" else 1
        options = frozenset(kind[2].split(","))
        found.append(_Mount(version, _unescaped(place[3]), _unescaped(place[4]), options))
    return found


def _levels(mount: _Mount, path: str) -> Iterator[str]:
    """Folders from the process's group up to the mount's own.

    A container may see its own group as the mount's root while its path still names the way from
    the host's root: then only the mount's root can be read. A path with `..` lies outside.
    """
    root = mount.root.rstrip("/")
    inside = path[len(root) :] if f"{path}/".startswith(f"{root}/") else ""
    steps = [step for step in inside.split("/") if step]
    if ".." in steps:
        steps = []
    for count in range(min(len(steps), _MOST_LEVELS), -1, -1):
        yield "/".join([mount.point.rstrip("/"), *steps[:count]])


def _unescaped(text: str) -> str:
    """mountinfo writes a space in a path as `\\040`."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match[1], 8)), text)
