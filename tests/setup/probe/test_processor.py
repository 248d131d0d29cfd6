"""The processor from recorded texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setup.probe.processor import number_list, processor
from tests.setup.probe.recorded import Recorded, folder
from tests.setup.probe.texts import CPU, RAPTOR_LAKE, ZEN5, Core, cores, cpuinfo, topology


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        ("0", {0}),
        ("", set()),
        ("7-3", set()),
        ("a-b,1-,-2,,5", {5}),
        ("0-99999999999", set()),
    ],
)
def test_lists_of_numbers(text: str, numbers: set[int]) -> None:
    assert number_list(text) == numbers


@given(st.sets(st.integers(0, 300)))
def test_any_set_of_numbers_is_read_back(numbers: set[int]) -> None:
    assert number_list(",".join(f"{n}" for n in sorted(numbers))) == numbers


FOUR = cores(4)
OLD_NAMES = {f"{CPU}/cpu{n}/topology/thread_siblings_list": "0-1\n" for n in (0, 1)}


@pytest.mark.parametrize(
    ("files", "usable", "expected"),
    [
        # All of four cores with two threads each.
        (topology(FOUR), range(8), 4),
        # Two threads of one core, and one of another.
        (topology(FOUR), (0, 4, 1), 2),
        # Older kernels: the file has another name.
        (OLD_NAMES, (0, 1), 1),
        (OLD_NAMES, (0, 1, 2), 3),  # processor 2 tells nothing: as the system counts, at most 3
        # Without these files, by /proc/cpuinfo.
        ({"/proc/cpuinfo": cpuinfo("A", ZEN5, FOUR)}, range(8), 4),
        ({"/proc/cpuinfo": cpuinfo("A", ZEN5, cores(4, sockets=2))}, range(16), 8),
        ({"/proc/cpuinfo": cpuinfo("A", ZEN5, FOUR)}, (0, 4), 1),
        # Without both, as the system counts: 4, or the processors that may be used.
        ({}, range(8), 4),
        ({}, (3,), 1),
        ({}, (), 4),
    ],
)
def test_physical_cores(files: dict[str, str], usable: list[int], expected: int) -> None:
    assert processor(Recorded(files=files, numbers=tuple(usable))).cores == expected


@pytest.mark.parametrize(
    ("missing", "avx2", "avx512"),
    [
        ("", True, True),
        ("avx512_vnni", True, False),
        ("avx512vbmi", True, False),
        ("avx2", False, True),
    ],
)
def test_instruction_sets(missing: str, avx2: bool, avx512: bool) -> None:
    flags = " ".join(word for word in ZEN5.split() if word != missing)
    found = processor(Recorded(files={"/proc/cpuinfo": cpuinfo("A", flags, FOUR)}))
    assert (found.avx2, found.avx512) == (avx2, avx512)
    assert (found.avx, found.sse42) == (True, True)


def test_the_floor_of_instruction_sets() -> None:
    old = processor(Recorded(files={"/proc/cpuinfo": cpuinfo("A", "sse sse2 sse4_2", FOUR)}))
    # Without popcnt the floor is not reached.
    assert (old.avx, old.avx2, old.avx512, old.sse42) == (False,) * 4


@pytest.mark.parametrize(
    ("layout", "online_text", "expected"),
    [
        (cores(4), None, 1),
        (cores(4, sockets=2), None, 2),
        # One socket's processors are switched off.
        (cores(4, threads=1, sockets=2), "0-3", 1),
        (cores(4, threads=1, sockets=4), None, 4),
    ],
)
def test_sockets(layout: list[Core], online_text: str | None, expected: int) -> None:
    files = topology(layout)
    if online_text is not None:
        files[f"{CPU}/online"] = online_text
    assert processor(Recorded(files=files, numbers=(0,))).sockets == expected
    if online_text is None:
        by_info = Recorded(files={"/proc/cpuinfo": cpuinfo("A", ZEN5, layout)})
        assert processor(by_info).sockets == expected


P_AND_E = [*(Core(0, i, (2 * i, 2 * i + 1)) for i in range(8)),
           *(Core(0, 8 + i, (16 + i,)) for i in range(16))]  # fmt: skip
LISTS = {"/sys/devices/cpu_core/cpus": "0-15\n", "/sys/devices/cpu_atom/cpus": "16-31\n"}


@pytest.mark.parametrize(
    ("usable", "expected"),
    [
        (range(32), (8, 16)),
        (range(24), (8, 8)),
        # Pinned to one kind: all its cores are alike.
        (range(16), (0, 0)),
        (range(16, 32), (0, 0)),
    ],
)
def test_fast_and_slow_cores(usable: range, expected: tuple[int, int]) -> None:
    files = topology(P_AND_E) | LISTS | {"/proc/cpuinfo": cpuinfo("A", RAPTOR_LAKE, P_AND_E)}
    found = processor(Recorded(files=files, numbers=usable))
    assert (found.performance_cores, found.efficiency_cores) == expected


def test_cores_of_least_power_are_slow() -> None:
    lists = LISTS | {
        "/sys/devices/cpu_atom/cpus": "16-29\n",
        "/sys/devices/cpu_lowpower/cpus": "30-31\n",
    }
    found = processor(Recorded(files=topology(P_AND_E) | lists, numbers=range(32)))
    assert (found.performance_cores, found.efficiency_cores) == (8, 16)


@pytest.mark.parametrize(
    ("capacities", "expected"),
    [
        ([1024] * 4, (0, 0)),
        # Under 90% of 1024 = 921.6 a core is slow.
        ([1024, 922, 921, 512], (2, 2)),
        # A fastest core of 446: the border is 401.4.
        ([446, 446, 402, 401], (3, 1)),
        # Unknown is not slow.
        ([1024, 0, 1024, 100], (3, 1)),
    ],
)
def test_cores_by_capacity(capacities: list[int], expected: tuple[int, int]) -> None:
    files = topology(cores(4, threads=1))
    for number, capacity in enumerate(capacities):
        files |= folder(f"{CPU}/cpu{number}", cpu_capacity=capacity)
    found = processor(Recorded(files=files, numbers=range(4)))
    assert (found.performance_cores, found.efficiency_cores) == expected


@pytest.mark.parametrize(
    ("info", "lscpu", "name"),
    [
        ("model name\t: AMD EPYC  7V13\t64-Core\x07\n", "", "AMD EPYC 7V13 64-Core"),
        ("processor\t: 0\n", "Model name:   Neoverse-V2\n", "Neoverse-V2"),
        ("", "  Model name:  Cortex-A78\n  Model name:  Cortex-A78\n", "Cortex-A78"),
        ("", "Model name:  -\n", "x86_64"),
        ("", "", "x86_64"),
    ],
)
def test_names(info: str, lscpu: str, name: str) -> None:
    machine = Recorded(files={"/proc/cpuinfo": info}, commands={"lscpu": lscpu})
    assert processor(machine).name == name
