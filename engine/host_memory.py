"""The memory that this process can use: the machine's, or what its control groups leave of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from engine.control_groups import memory_limits, swap_limit
from engine.system_files import Reader, read_system_file


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes. `limit_bytes` is the smallest limit of a control group below the machine's memory,
    0 where there is none; the other numbers already respect it."""

    total_bytes: int
    available_bytes: int
    swap_bytes: int = 0
    limit_bytes: int = 0


def host_memory(read: Reader, counted: Callable[[], HostMemory]) -> HostMemory:
    """Memory by /proc/meminfo and the control groups; `counted` answers where that is missing."""
    memory = _by_meminfo(read("/proc/meminfo")) or counted()
    total, available, limit_bytes = memory.total_bytes, memory.available_bytes, 0
    for limit in memory_limits(read):
        # Version 1 writes "no limit" as a number near 2^63: no limit is one above the memory.
        if limit.limit_bytes < total:
            total = limit_bytes = limit.limit_bytes
        available = min(available, max(0, limit.limit_bytes - limit.held_bytes))
    swap = swap_limit(read)
    return HostMemory(
        total_bytes=total,
        available_bytes=min(available, total),
        swap_bytes=memory.swap_bytes if swap is None else min(memory.swap_bytes, swap),
        limit_bytes=limit_bytes,
    )


def free_memory() -> int:
    """Bytes that this process can have now."""
    return host_memory(read_system_file, counted_memory).available_bytes


def counted_memory() -> HostMemory:
    """Memory as psutil counts it, for systems without /proc; zeros where psutil fails."""
    import psutil

    try:
        memory, swap = psutil.virtual_memory(), psutil.swap_memory().total
    except (OSError, RuntimeError, psutil.Error):
        return HostMemory(0, 0)
    return HostMemory(memory.total, memory.available, swap)


def _by_meminfo(text: str) -> HostMemory | None:
    lines = re.findall(r"^(\w+):[ \t]+(\d{1,15}) kB", text, re.MULTILINE | re.ASCII)
    found = {name: int(number) * 1024 for name, number in lines}
    if not found.get("MemTotal"):
        return None
    # Kernels before 3.14 do not estimate what is available.
    free = sum(found.get(name, 0) for name in ("MemFree", "Buffers", "Cached"))
    available = min(found.get("MemAvailable", free), found["MemTotal"])
    return HostMemory(found["MemTotal"], available, found.get("SwapTotal", 0))
