"""The processor: its name, cores, sockets and instruction sets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from engine.hardware import Cpu
from engine.system_files import whole
from setup.probe.machine import Machine
from setup.probe.notes import plain

_CPU_FOLDER = "/sys/devices/system/cpu"
_AVX512 = {"avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512vbmi"}
# The original's setup 0.1.40: below this share of the fastest core's capacity a core is slow.
_SLOW_SHARE = 0.9
_MOST_PROCESSORS = 8192


@dataclass(frozen=True, slots=True)
class _Core:
    """A physical core: its logical processors, and the socket it is in."""

    processors: frozenset[int]
    socket: int


def processor(machine: Machine) -> Cpu:
    """The processor, with the cores that this process may use."""
    info = machine.read("/proc/cpuinfo")
    usable = usable_processors(machine)
    cores = _cores(machine, info, usable)
    fast, slow = _kinds(machine, cores)
    flags = re.search(r"^flags\s*:\s*(.+)$", info, re.MULTILINE)
    words = set(flags[1].split()) if flags else set()
    return Cpu(
        name=_name(machine, info),
        cores=len(cores) or _counted(machine, usable),
        avx2="avx2" in words,
        avx512=words >= _AVX512,
        performance_cores=fast,
        efficiency_cores=slow,
        sockets=_sockets(machine, info),
        avx="avx" in words,
        sse42=words >= {"sse4_2", "popcnt"},
    )


def usable_processors(machine: Machine) -> tuple[int, ...]:
    """Logical processors that this process may use, by number."""
    return machine.processors()[:_MOST_PROCESSORS]


def number_list(text: str) -> frozenset[int]:
    """The kernel's list of numbers, "0-3,8": {0, 1, 2, 3, 8}. What is not one is left out."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low, high = whole(first), whole(last if dash else first)
        if low is not None and high is not None and low <= high < _MOST_PROCESSORS:
            found.update(range(low, high + 1))
    return frozenset(found)


def _name(machine: Machine, info: str) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    if found:
        return plain(found[1])
    # Arm's cpuinfo has numbers only; lscpu knows names, one for each kind of core.
    listed = re.findall(r"^\s*Model name:\s*(.+)$", machine.command(["lscpu"]), re.MULTILINE)
    names = [plain(name) for name in dict.fromkeys(listed) if name.strip() != "-"]
    return " + ".join(names[:4]) or machine.architecture


def _cores(machine: Machine, info: str, usable: Iterable[int]) -> tuple[_Core, ...]:
    by_folder = {_core(machine, number) for number in usable}
    if None not in by_folder:
        return tuple(core for core in by_folder if core is not None)
    allowed = set(usable)
    places: dict[tuple[int, int], set[int]] = {}
    for number, place in _places(info).items():
        if number in allowed:
            places.setdefault(place, set()).add(number)
    return tuple(_Core(frozenset(numbers), place[0]) for place, numbers in places.items())


def _core(machine: Machine, number: int) -> _Core | None:
    folder = f"{_CPU_FOLDER}/cpu{number}/topology"
    # The first name came with Linux 5.3, the second is older.
    listed = machine.read(f"{folder}/core_cpus_list") or machine.read(
        f"{folder}/thread_siblings_list"
    )
    together = number_list(listed)
    if number not in together:
        return None
    return _Core(together, whole(machine.read(f"{folder}/physical_package_id")) or 0)


def _places(info: str) -> dict[int, tuple[int, int]]:
    """By /proc/cpuinfo, (socket, core) of each logical processor that has both."""
    found: dict[int, tuple[int, int]] = {}
    for block in info.split("\n\n"):
        pairs = re.findall(r"^(processor|physical id|core id)\s*:\s*(\d{1,9})$", block, re.M | re.A)
        facts = {name: int(number) for name, number in pairs}
        if len(facts) == 3:
            found[facts["processor"]] = facts["physical id"], facts["core id"]
    return found


def _counted(machine: Machine, usable: tuple[int, ...]) -> int:
    physical = machine.core_count() or len(usable)
    return max(1, min(physical, len(usable) or physical))


def _sockets(machine: Machine, info: str) -> int:
    """Sockets with processors, those that this process may not use counted too."""
    online = number_list(machine.read(f"{_CPU_FOLDER}/online"))
    texts = (
        machine.read(f"{_CPU_FOLDER}/cpu{number}/topology/physical_package_id")
        for number in sorted(online)
    )
    found = {number for text in texts if (number := whole(text)) is not None}
    return max(1, len(found or {socket for socket, _ in _places(info).values()}))


def _kinds(machine: Machine, cores: tuple[_Core, ...]) -> tuple[int, int]:
    """Fast and slow cores among `cores`; (0, 0) when all are alike."""
    fast = number_list(machine.read("/sys/devices/cpu_core/cpus"))
    # The slowest cores of some Intel processors have a list of their own.
    slow = number_list(machine.read("/sys/devices/cpu_atom/cpus")) | number_list(
        machine.read("/sys/devices/cpu_lowpower/cpus")
    )
    if not (fast and slow):
        fast, slow = _by_capacity(machine, cores)
    counts = [sum(bool(core.processors & kind) for core in cores) for kind in (fast, slow)]
    return (counts[0], counts[1]) if all(counts) else (0, 0)


def _by_capacity(
    machine: Machine, cores: tuple[_Core, ...]
) -> tuple[frozenset[int], frozenset[int]]:
    """Processors by the kernel's measure of speed: 1024 for the fastest core."""
    found = {
        number: whole(machine.read(f"{_CPU_FOLDER}/cpu{number}/cpu_capacity")) or 0
        for core in cores
        for number in core.processors
    }
    border = _SLOW_SHARE * max(found.values(), default=0)
    slow = frozenset(number for number, capacity in found.items() if 0 < capacity < border)
    return frozenset(found) - slow, slow
