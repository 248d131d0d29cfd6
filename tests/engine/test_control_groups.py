"""Limits of control groups, from recorded files of both versions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.control_groups import MemoryLimit, cpu_limit, memory_limits, swap_limit
from engine.system_files import Reader

V2 = "/sys/fs/cgroup"
V1 = "/sys/fs/cgroup/memory"
NO_LIMIT_V1 = "9223372036854771712"
PATH_V2 = {"/proc/self/cgroup": "0::/a.slice/b.scope\n"}
PATH_V1 = {"/proc/self/cgroup": "9:cpu,cpuacct:/x\n4:memory:/docker/1f\n0::/\n"}


def reader(files: Mapping[str, str]) -> Reader:
    return lambda path: files.get(path, "")


def limits(*parts: Mapping[str, str]) -> list[tuple[int, int]]:
    files = {path: text for part in parts for path, text in part.items()}
    found = memory_limits(reader(files))
    assert all(isinstance(limit, MemoryLimit) for limit in found)
    return [(limit.limit_bytes, limit.held_bytes) for limit in found]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, []),
        ({f"{V2}/memory.max": "max\n"}, []),
        ({f"{V2}/memory.max": "100\n"}, [(100, 0)]),
        # Innermost first, and every level counts.
        (
            PATH_V2
            | {
                f"{V2}/a.slice/b.scope/memory.max": "70\n",
                f"{V2}/a.slice/memory.max": "50\n",
                f"{V2}/a.slice/memory.current": "20\n",
                f"{V2}/memory.max": "max\n",
            },
            [(70, 0), (50, 20)],
        ),
        # A group above memory.high is throttled: the lower of both is what it can use.
        ({f"{V2}/memory.max": "90", f"{V2}/memory.high": "80"}, [(80, 0)]),
        ({f"{V2}/memory.max": "max", f"{V2}/memory.high": "80"}, [(80, 0)]),
        # 60 in use, of which 25 + 5 are pages of files; what is written elsewhere does not count.
        (
            {
                f"{V2}/memory.max": "100",
                f"{V2}/memory.current": "60",
                f"{V2}/memory.stat": "anon 30\nfile 31\ninactive_file 25\nactive_file 5\n",
            },
            [(100, 30)],
        ),
        # More pages than use, as the counters are read one after the other.
        (
            {
                f"{V2}/memory.max": "100",
                f"{V2}/memory.current": "20",
                f"{V2}/memory.stat": "inactive_file 25\n",
            },
            [(100, 0)],
        ),
        # A path that leads out of what is mounted here: the root of the mount.
        ({"/proc/self/cgroup": "0::/../../other\n", f"{V2}/memory.max": "9"}, [(9, 0)]),
        # Version 1, with the version 2 hierarchy mounted beside it for nothing.
        (
            PATH_V1
            | {
                f"{V1}/docker/1f/memory.limit_in_bytes": "77\n",
                f"{V1}/docker/1f/memory.usage_in_bytes": "30\n",
                f"{V1}/docker/1f/memory.stat": "inactive_file 1\ntotal_inactive_file 10\n",
                f"{V1}/memory.limit_in_bytes": f"{NO_LIMIT_V1}\n",
            },
            [(77, 20), (int(NO_LIMIT_V1), 0)],
        ),
        # In Docker of version 1 the own group is mounted as the root, under the host's path.
        (
            PATH_V1
            | {
                "/proc/self/mountinfo": (
                    "33 31 0:28 /docker/1f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
                ),
                f"{V1}/memory.limit_in_bytes": "77\n",
                f"{V1}/docker/1f/memory.limit_in_bytes": "1\n",
            },
            [(77, 0)],
        ),
        # Mounted elsewhere, in a folder with a space.
        (
            PATH_V2
            | {
                "/proc/self/mountinfo": (
                    "30 1 0:20 / /my\\040groups rw shared:9 - cgroup2 cgroup2 rw\n"
                ),
                "/my groups/a.slice/memory.max": "8",
                f"{V2}/memory.max": "3",
            },
            [(8, 0)],
        ),
        ({f"{V2}/memory.max": "-5"}, []),
        ({f"{V2}/memory.max": "9" * 30}, []),
        ({f"{V2}/memory.max": "12 GB"}, []),
    ],
)
def test_memory(files: dict[str, str], expected: list[tuple[int, int]]) -> None:
    assert limits(files) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({f"{V2}/memory.swap.max": "max\n"}, None),
        ({f"{V2}/memory.swap.max": "0\n"}, 0),
        (PATH_V2 | {f"{V2}/a.slice/memory.swap.max": "5", f"{V2}/memory.swap.max": "9"}, 5),
        # Version 1 limits memory and swap together: 33 - 32.
        ({f"{V1}/memory.memsw.limit_in_bytes": "33", f"{V1}/memory.limit_in_bytes": "32"}, 1),
        ({f"{V1}/memory.memsw.limit_in_bytes": "32", f"{V1}/memory.limit_in_bytes": "32"}, 0),
        ({f"{V1}/memory.memsw.limit_in_bytes": "33"}, None),
        (
            {
                f"{V1}/memory.memsw.limit_in_bytes": NO_LIMIT_V1,
                f"{V1}/memory.limit_in_bytes": NO_LIMIT_V1,
            },
            None,
        ),
    ],
)
def test_swap(files: dict[str, str], expected: int | None) -> None:
    assert swap_limit(reader(files)) == expected


CPU_V1 = "/sys/fs/cgroup/cpu"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 0.0),
        ({f"{V2}/cpu.max": "max 100000\n"}, 0.0),
        ({f"{V2}/cpu.max": "250000 100000\n"}, 2.5),
        ({f"{V2}/cpu.max": "50000 100000\n"}, 0.5),
        # 16 of 8 processors is no limit.
        ({f"{V2}/cpu.max": "1600000 100000\n"}, 0.0),
        (PATH_V2 | {f"{V2}/a.slice/cpu.max": "3 1", f"{V2}/cpu.max": "4 1"}, 3.0),
        ({f"{CPU_V1}/cpu.cfs_quota_us": "-1", f"{CPU_V1}/cpu.cfs_period_us": "100000"}, 0.0),
        ({f"{CPU_V1}/cpu.cfs_quota_us": "150000", f"{CPU_V1}/cpu.cfs_period_us": "100000"}, 1.5),
        (
            PATH_V1 | {f"{CPU_V1}/x/cpu.cfs_quota_us": "7", f"{CPU_V1}/x/cpu.cfs_period_us": "2"},
            3.5,
        ),
        ({f"{V2}/cpu.max": "1 0\n"}, 0.0),
        ({f"{V2}/cpu.max": "1\n"}, 0.0),
    ],
)
def test_processors(files: dict[str, str], expected: float) -> None:
    assert cpu_limit(reader(files), 8) == expected


@given(st.lists(st.one_of(st.none(), st.integers(1, 10**12)), min_size=1, max_size=6))
def test_every_level_of_a_nest_counts(nest: list[int | None]) -> None:
    steps = [f"g{i}" for i in range(len(nest) - 1)]
    files = {"/proc/self/cgroup": f"0::/{'/'.join(steps)}\n"}
    for depth, limit in enumerate(nest):
        folder = "/".join([V2, *steps[:depth]])
        files[f"{folder}/memory.max"] = "max\n" if limit is None else f"{limit}\n"
    expected = [limit for limit in reversed(nest) if limit is not None]
    assert [limit.limit_bytes for limit in memory_limits(reader(files))] == expected


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=20))
def test_any_text_is_read(cgroup: str, mounts: str, other: str) -> None:
    files = {"/proc/self/cgroup": cgroup, "/proc/self/mountinfo": mounts}
    read: Reader = lambda path: files.get(path, other)  # noqa: E731
    assert all(limit.limit_bytes >= 0 for limit in memory_limits(read))
    assert cpu_limit(read, 4) < 4
    assert (swap_limit(read) or 0) >= 0
