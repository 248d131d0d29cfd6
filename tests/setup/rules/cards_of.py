"""Cards and machines for the tests of rules about cards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.hardware import Gpu, Hardware
from tests.machines import CARD, machine

GIB = 1 << 30


def nvidia(index: int, gib: float, arch: str = "8.9", **facts: Any) -> Gpu:
    """An NVIDIA card with so many GiB and a driver for CUDA 13."""
    values = {
        "uuid": f"GPU-{index}",
        "pci_bus_id": f"0000:{index + 1:02x}:00.0",
        "name": f"RTX {index}",
        "driver": "580.95.05",
    }
    return replace(CARD, index=index, vram_bytes=int(gib * GIB), arch=arch, **{**values, **facts})


def amd(index: int, gib: float, arch: str = "gfx1201", **facts: Any) -> Gpu:
    """An AMD card with so many GiB."""
    values = {"vendor": "amd", "uuid": f"AMD-{index}", "name": f"Radeon {index}", "driver": ""}
    return nvidia(index, gib, arch, **{**values, **facts})


def pc(*gpus: Gpu, ram_gib: float = 62.7, **facts: Any) -> Hardware:
    """A Linux machine with these cards."""
    return replace(machine(gpus=gpus), ram_bytes=int(ram_gib * GIB), **facts)


def indices(cards: tuple[Gpu, ...]) -> list[int]:
    """Their numbers, in order."""
    return [gpu.index for gpu in cards]
