"""Finds the facts of this machine. What reads files and runs commands is given to it, so that every
rule can be tested from a recording."""

from __future__ import annotations

import csv
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from engine.hardware import Cpu, Gpu, Hardware

_NVIDIA_QUERY = "index,uuid,pci.bus_id,name,compute_cap,memory.total,memory.free,driver_version"
_AVX512 = {"avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512vbmi"}
_MIB = 1 << 20


class Machine(Protocol):
    """What the probe asks of a machine."""

    os: str
    release: str

    def read(self, path: str) -> str:
        """The text of a file; empty when it cannot be read."""

    def command(self, args: Sequence[str]) -> str:
        """What a command prints; empty when it is missing or fails."""

    def disk_free_bytes(self) -> int:
        """Free bytes where models are kept."""

    def memory_bytes(self) -> tuple[int, int]:
        """Total and available memory where the system has no /proc/meminfo."""

    def cores(self) -> int:
        """Physical cores that this process may use."""


class ThisMachine:
    """The machine that the process runs on."""

    def __init__(self, folder: Path) -> None:
        self.os = platform.system().lower()
        self.release = platform.release().lower()
        self._folder = folder

    def read(self, path: str) -> str:
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def command(self, args: Sequence[str]) -> str:
        found = shutil.which(args[0])
        if found is None:
            return ""
        try:
            done = subprocess.run(
                [found, *args[1:]], capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout if done.returncode == 0 else ""

    def disk_free_bytes(self) -> int:
        return shutil.disk_usage(self._folder).free

    def memory_bytes(self) -> tuple[int, int]:
        import psutil

        memory = psutil.virtual_memory()
        return memory.total, memory.available

    def cores(self) -> int:
        import psutil

        physical = psutil.cpu_count(logical=False) or 1
        logical = psutil.cpu_count() or physical
        process = psutil.Process()
        usable = len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else logical
        return max(1, min(physical, usable))


def probe(machine: Machine) -> Hardware:
    """The facts of `machine`. A fact that cannot be found is 0, empty or false."""
    total, available = _memory(machine)
    return Hardware(
        gpus=_nvidia(machine),
        ram_bytes=total,
        ram_available_bytes=available,
        cpu=_cpu(machine),
        disk_free_bytes=machine.disk_free_bytes(),
        os=machine.os,
        wsl=machine.os == "linux" and "microsoft" in machine.release,
    )


def _memory(machine: Machine) -> tuple[int, int]:
    """Total and available bytes: of the machine, or of the control group when that is smaller."""
    lines = re.findall(r"^(\w+):\s+(\d+) kB", machine.read("/proc/meminfo"), re.MULTILINE)
    found: dict[str, str] = dict(lines)
    if "MemTotal" not in found:
        return machine.memory_bytes()
    total = int(found["MemTotal"]) * 1024
    available = int(found.get("MemAvailable", found["MemTotal"])) * 1024
    limit = machine.read("/sys/fs/cgroup/memory.max").strip()
    if limit.isdigit() and int(limit) < total:
        used = machine.read("/sys/fs/cgroup/memory.current").strip()
        total = int(limit)
        available = min(available, max(0, total - int(used if used.isdigit() else 0)))
    return total, available


def _cpu(machine: Machine) -> Cpu:
    info = machine.read("/proc/cpuinfo")
    name = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", info, re.MULTILINE)
    words = set(flags[1].split()) if flags else set()
    return Cpu(
        name=name[1].strip() if name else platform.machine(),
        cores=machine.cores(),
        avx2="avx2" in words,
        avx512=words >= _AVX512,
    )


def _nvidia(machine: Machine) -> tuple[Gpu, ...]:
    """Cards in PCI order. A line that cannot be read is left out."""
    text = machine.command(
        ["nvidia-smi", f"--query-gpu={_NVIDIA_QUERY}", "--format=csv,noheader,nounits"]
    )
    gpus = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        try:
            index, uuid, bus, name, arch, total, free, driver = (cell.strip() for cell in row)
            gpus.append(
                Gpu(
                    index=int(index),
                    uuid=uuid,
                    pci_bus_id=bus,
                    vendor="nvidia",
                    name=name,
                    arch=arch,
                    vram_bytes=int(total) * _MIB,
                    vram_free_bytes=int(free) * _MIB,
                    driver=driver,
                    integrated=False,
                )
            )
        except ValueError:
            continue
    return tuple(gpus)
