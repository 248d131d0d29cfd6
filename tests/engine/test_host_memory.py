"""Memory of a machine, or of the part of it that a control group leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.host_memory import HostMemory, counted_memory, host_memory
from engine.system_files import MOST_BYTES, read_system_file, whole

KB = 1024
GIB = 1 << 30
MEMINFO = (
    "MemTotal:       65345612 kB\nMemFree:         1000000 kB\nMemAvailable:   51234560 kB\n"
    "Buffers:          200000 kB\nCached:          3000000 kB\nSwapTotal:       8388604 kB\n"
)
TOTAL, AVAILABLE, SWAP = 65345612 * KB, 51234560 * KB, 8388604 * KB
NO_LIMIT_V1 = 9223372036854771712


def not_counted() -> HostMemory:
    raise AssertionError("/proc/meminfo is there")


def memory(meminfo: str = MEMINFO, **files: str) -> HostMemory:
    texts = {f"/sys/fs/cgroup/{name.replace('__', '.')}": text for name, text in files.items()}
    texts["/proc/meminfo"] = meminfo
    return host_memory(lambda path: texts.get(path, ""), not_counted)


def test_a_machine_without_limits() -> None:
    assert memory() == HostMemory(TOTAL, AVAILABLE, SWAP, 0)
    assert memory(memory__max="max\n") == memory()


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [
        # 16 GiB of 62.3: total and limit 16, available 16 - 5.
        (16 * GIB, 5 * GIB, (16 * GIB, 11 * GIB, 16 * GIB)),
        # Nothing used: available is all of the limit, below the machine's 48.9 GiB.
        (16 * GIB, 0, (16 * GIB, 16 * GIB, 16 * GIB)),
        # More used than allowed, for a moment.
        (16 * GIB, 17 * GIB, (16 * GIB, 0, 16 * GIB)),
        # The machine has less available than the group allows: 48.9 of 60.
        (60 * GIB, 0, (60 * GIB, AVAILABLE, 60 * GIB)),
        # A limit of the machine's memory or more is none.
        (TOTAL, 0, (TOTAL, AVAILABLE, 0)),
        (NO_LIMIT_V1, 30 * GIB, (TOTAL, AVAILABLE, 0)),
        (2**63 - 1, 0, (TOTAL, AVAILABLE, 0)),
        # 80 allowed, 70 held by others of the group: 10 are left, whatever the machine has.
        (80 * GIB, 70 * GIB, (TOTAL, 10 * GIB, 0)),
    ],
)
def test_a_limit(limit: int, used: int, expected: tuple[int, int, int]) -> None:
    found = memory(memory__max=f"{limit}\n", memory__current=f"{used}\n")
    assert (found.total_bytes, found.available_bytes, found.limit_bytes) == expected


def test_swap_is_limited_too() -> None:
    assert memory(memory__swap__max="0\n").swap_bytes == 0
    assert memory(memory__swap__max=f"{GIB}\n").swap_bytes == GIB
    assert memory(memory__swap__max=f"{100 * GIB}\n").swap_bytes == SWAP


def test_kernels_that_do_not_estimate() -> None:
    text = MEMINFO.replace("MemAvailable", "MemOther")
    # Free, buffers and pages of files: 1000000 + 200000 + 3000000.
    assert memory(text).available_bytes == 4_200_000 * KB


@pytest.mark.parametrize("text", ["", "MemTotal: 0 kB\n", "MemTotal: many kB\n", "MemFree: 5 kB\n"])
def test_machines_without_meminfo(text: str) -> None:
    counted = HostMemory(8 * GIB, 3 * GIB, GIB)
    assert host_memory(lambda path: text, lambda: counted) == counted


@given(
    st.integers(1, 10**12), st.integers(0, 10**12), st.integers(0, 10**19), st.integers(0, 10**13)
)
def test_what_is_available_is_never_more_than_there_is(
    total: int, available: int, limit: int, used: int
) -> None:
    text = f"MemTotal: {total} kB\nMemAvailable: {available} kB\n"
    found = memory(text, memory__max=f"{limit}", memory__current=f"{used}")
    assert 0 <= found.available_bytes <= found.total_bytes <= total * KB
    assert found.limit_bytes in (0, found.total_bytes)


def test_this_machine() -> None:
    here = host_memory(read_system_file, counted_memory)
    assert 0 < here.available_bytes <= here.total_bytes
    assert counted_memory().total_bytes >= here.total_bytes


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12\n", 12),
        (" 0 ", 0),
        (str(NO_LIMIT_V1), NO_LIMIT_V1),
        ("max", None),
        ("-1", None),
        ("1.5", None),
        ("", None),
        ("1_000", None),
        ("\u0661", None),  # a digit, but not one that the kernel writes
        ("9" * 20, None),
        ("9" * 5000, None),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole(text) == number


def test_endless_files_end() -> None:
    assert len(read_system_file("/dev/zero")) == MOST_BYTES
    assert read_system_file("/proc/self/mem") == ""
