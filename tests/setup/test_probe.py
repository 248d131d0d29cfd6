"""The probe, on a machine made of recorded texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.hardware import Gpu, Hardware
from setup.probe import ThisMachine, probe

_CPUINFO = """processor\t: 0
model name\t: AMD Ryzen 7 7700
flags\t\t: fpu avx avx2 avx512f avx512bw avx512vl avx512_vnni avx512vbmi
processor\t: 1
model name\t: AMD Ryzen 7 7700
"""
_SMI = """0, GPU-a, 00000000:01:00.0, NVIDIA GeForce RTX 5070, 12.0, 12227, 11800, 580.95
1, GPU-b, 00000000:02:00.0, NVIDIA GeForce RTX 3060, 8.6, [N/A], 11800, 580.95

2, GPU-c, 00000000:03:00.0, "A card, with a comma", 8.9, 24564, 24000, 580.95
"""


class Recorded:
    """A machine whose files and command outputs are given."""

    os = "linux"
    release = "6.6.0-microsoft-standard"

    def __init__(self, files: dict[str, str], smi: str = "") -> None:
        self._files = files
        self._smi = smi

    def read(self, path: str) -> str:
        return self._files.get(path, "")

    def command(self, args: Sequence[str]) -> str:
        return self._smi if args[0] == "nvidia-smi" else ""

    def disk_free_bytes(self) -> int:
        return 5

    def memory_bytes(self) -> tuple[int, int]:
        return 7, 3

    def cores(self) -> int:
        return 8


_MEMINFO = {"/proc/meminfo": "MemTotal:  66824704 kB\nMemFree: 1 kB\nMemAvailable:  60000000 kB\n"}


def test_a_whole_machine() -> None:
    found = probe(Recorded({**_MEMINFO, "/proc/cpuinfo": _CPUINFO}, _SMI))
    assert found.ram_bytes == 66_824_704 * 1024
    assert found.ram_available_bytes == 60_000_000 * 1024
    assert (found.cpu.name, found.cpu.cores) == ("AMD Ryzen 7 7700", 8)
    assert found.cpu.avx2
    assert found.cpu.avx512
    assert found.wsl
    # The card whose memory cannot be read is left out.
    assert [gpu.index for gpu in found.gpus] == [0, 2]
    assert found.gpus[0] == Gpu(
        index=0,
        uuid="GPU-a",
        pci_bus_id="00000000:01:00.0",
        vendor="nvidia",
        name="NVIDIA GeForce RTX 5070",
        arch="12.0",
        vram_bytes=12227 << 20,
        vram_free_bytes=11800 << 20,
        driver="580.95",
        integrated=False,
    )
    assert found.gpus[1].name == "A card, with a comma"
    assert Hardware.from_json(found.to_json() | {"gpus": list(found.to_json()["gpus"])}) == found


def test_a_control_group_limits_memory() -> None:
    files = {
        **_MEMINFO,
        "/sys/fs/cgroup/memory.max": f"{8 << 30}\n",
        "/sys/fs/cgroup/memory.current": f"{3 << 30}\n",
    }
    found = probe(Recorded(files))
    assert (found.ram_bytes, found.ram_available_bytes) == (8 << 30, 5 << 30)
    unlimited = probe(Recorded({**files, "/sys/fs/cgroup/memory.max": "max\n"}))
    assert unlimited.ram_bytes == 66_824_704 * 1024


def test_nothing_known_is_not_an_error() -> None:
    found = probe(Recorded({}))
    assert (found.ram_bytes, found.ram_available_bytes) == (7, 3)
    assert found.gpus == ()
    assert not found.cpu.avx2


def test_this_machine(tmp_path: Path) -> None:
    found = probe(ThisMachine(tmp_path))
    assert found.cpu.cores >= 1
    assert 0 < found.ram_available_bytes <= found.ram_bytes
    assert found.disk_free_bytes > 0
    machine = ThisMachine(tmp_path)
    assert machine.command(["a-program-that-is-not-there"]) == ""
    assert machine.read(str(tmp_path)) == ""
