"""NVIDIA cards by the nvidia-smi program, where the `pynvml` module cannot be used."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

from engine.hardware import Gpu
from engine.host_memory import HostMemory
from engine.system_files import whole
from setup.probe.machine import Machine
from setup.probe.notes import Notes, plain
from setup.probe.nvml import UNIFIED, unified_note
from setup.probe.pci import bus_id, bus_order

_FIELDS = (
    "uuid",
    "pci.bus_id",
    "name",
    "compute_cap",
    "memory.total",
    "memory.free",
    "driver_version",
    "display_active",
    "compute_mode",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "clocks.max.sm",
    "mig.mode.current",
)
_MIB = 1 << 20
_MOST_ROWS = 64


def smi_gpus(machine: Machine, memory: HostMemory, notes: Notes) -> tuple[Gpu, ...]:
    """The cards in PCI bus order, numbered. A line that cannot be read becomes a note."""
    query = f"--query-gpu={','.join(_FIELDS)}"
    text = machine.command(["nvidia-smi", query, "--format=csv,noheader,nounits"])
    found: list[Gpu] = []
    # Stray control characters would make csv fail.
    lines = [plain(line, 1000) for line in text.splitlines() if line.strip()]
    for row in csv.reader(lines[:_MOST_ROWS], skipinitialspace=True):
        gpu = _gpu([cell.strip() for cell in row], memory, notes)
        if gpu is not None:
            found.append(gpu)
    found.sort(key=lambda gpu: bus_order(gpu.pci_bus_id))
    return tuple(replace(gpu, index=i) for i, gpu in enumerate(found))


def _gpu(row: list[str], memory: HostMemory, notes: Notes) -> Gpu | None:
    if len(row) != len(_FIELDS):
        notes.add(f"nvidia-smi: a line cannot be read: {', '.join(row)[:100]}")
        return None
    facts = dict(zip(_FIELDS, row, strict=True))
    place, name = bus_id(facts["pci.bus_id"]), facts["name"]
    unified = _is_none(facts["memory.total"]) or any(board in name for board in UNIFIED)
    if not (place and (_bytes(facts["memory.total"]) or unified)):
        notes.add(f"nvidia-smi: card {name} is left out, its memory is {facts['memory.total']}")
        return None
    if facts["mig.mode.current"] == "Enabled":
        notes.add(f"card {name} ({place}) is in MIG mode and left out: only NVML lists its parts")
        return None
    if unified:
        notes.add(unified_note(name, memory))
    return _made(facts, place, unified, memory)


def _made(facts: dict[str, str], place: str, unified: bool, memory: HostMemory) -> Gpu:
    total = 0 if unified else _bytes(facts["memory.total"])
    return Gpu(
        index=0,
        uuid=facts["uuid"] if facts["uuid"].startswith("GPU-") else f"PCI-{place}",
        pci_bus_id=place,
        vendor="nvidia",
        name=facts["name"],
        arch=facts["compute_cap"] if re.fullmatch(r"\d+\.\d", facts["compute_cap"]) else "",
        vram_bytes=total,
        vram_free_bytes=min(total, _bytes(facts["memory.free"])),
        driver=_known(facts["driver_version"]),
        integrated=unified,
        display=facts["display_active"] in ("Enabled", "Yes"),
        compute_mode=_known(facts["compute_mode"]),
        link_generation=whole(facts["pcie.link.gen.max"]) or 0,
        link_width=whole(facts["pcie.link.width.max"]) or 0,
        shared_bytes=memory.total_bytes if unified else 0,
        clock_mhz=whole(facts["clocks.max.sm"]) or 0,
    )


def _bytes(cell: str) -> int:
    return (whole(cell) or 0) * _MIB


def _known(cell: str) -> str:
    return "" if cell.startswith("[") else cell


def _is_none(cell: str) -> bool:
    """nvidia-smi's words for memory that a card does not have; errors are written otherwise."""
    return cell.strip("[]").upper() in ("N/A", "NOT SUPPORTED")
