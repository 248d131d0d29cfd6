"""Workers that compute experts on the CPU."""

from __future__ import annotations

from typing import Final

from engine.hardware import Cpu

LEAST_SOCKET_CORES: Final = 3


def pool_workers(cpu: Cpu) -> tuple[int, str] | None:
    """Workers for a processor with more slow cores than fast ones, and why; None: no rule."""
    fast, slow = cpu.performance_cores, cpu.efficiency_cores
    if fast < 1 or slow <= fast:
        return None
    workers = max(1, fast - 1 + slow // 2)
    return workers, f"pool workers {workers}: {fast} fast cores - 1 + {slow} slow ones / 2"


def socket_tip(cpu: Cpu) -> str | None:
    """What to try on a machine with several sockets; nothing is written."""
    each = cpu.cores // max(1, cpu.sockets)
    if cpu.sockets < 2 or each < LEAST_SOCKET_CORES:
        return None
    return (
        f"{cpu.sockets} sockets with {each} cores each: try --pool-workers {each - 1}, so that "
        "the workers stay on one"
    )
