"""NVIDIA cards by NVML, through the `pynvml` module of nvidia-ml-py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from engine.hardware import Gpu
from engine.host_memory import HostMemory
from setup.probe.notes import Notes, reason
from setup.probe.nvml_device import NvmlDevice, count, words
from setup.probe.pci import bus_id, bus_order
from setup.probe.visible import Card

COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
# Boards whose GPU has no memory of its own; some drivers report the machine's memory as the card's.
UNIFIED = ("GB10", "Thor", "Orin", "Xavier")

_MOST_CARDS = 64
_CLOCK_SM = 1


class NvmlUnusableError(Exception):
    """NVML does not answer at all."""


@dataclass(frozen=True, slots=True)
class _Identity:
    index: int
    uuid: str
    place: str
    name: str


@dataclass(frozen=True, slots=True)
class _Own:
    """A card's own memory in bytes; `unified`: it uses the machine's."""

    total: int
    free: int
    unified: bool = False


def nvml_cards(nvml: Any, memory: HostMemory, notes: Notes) -> tuple[Card, ...]:
    """The cards in PCI bus order, numbered. Raises `NvmlUnusableError` when NVML cannot start."""
    try:
        nvml.nvmlInit()
    except Exception as error:
        raise NvmlUnusableError(reason(error)) from error
    try:
        return _cards(nvml, memory, notes)
    finally:
        notes.guard("closing NVML", lambda: nvml.nvmlShutdown(), None)


def _cards(nvml: Any, memory: HostMemory, notes: Notes) -> tuple[Card, ...]:
    try:
        present = min(count(nvml.nvmlDeviceGetCount()), _MOST_CARDS)
    except Exception as error:
        raise NvmlUnusableError(reason(error)) from error
    driver = words(
        notes.guard("the NVIDIA driver's version", lambda: nvml.nvmlSystemGetDriverVersion(), "")
    )
    found: list[Card] = []
    for i in range(present):
        try:
            device = NvmlDevice(nvml, nvml.nvmlDeviceGetHandleByIndex(i))
        except Exception as error:
            notes.add(f"NVIDIA card {i} does not answer and is left out: {reason(error)}")
            continue
        card = _card(device, i, driver, memory, notes)
        if card is not None:
            found.append(card)
    if len(found) < present:
        # NVML counts in bus order in practice: so a card keeps its number when another is lost.
        return tuple(found)
    found.sort(key=lambda card: bus_order(card.gpu.pci_bus_id))
    return tuple(_numbered(card, i) for i, card in enumerate(found))


def _numbered(card: Card, index: int) -> Card:
    parts = tuple(replace(part, index=index) for part in card.instances)
    return replace(card, gpu=replace(card.gpu, index=index), instances=parts)


def _card(
    device: NvmlDevice, index: int, driver: str, memory: HostMemory, notes: Notes
) -> Card | None:
    identity = _identity(device, index)
    if not identity.uuid:
        notes.add(f"NVIDIA card {index} has no identity and is left out: {device.why()}")
        return None
    mig = _in_parts(device)
    # A card in MIG mode may keep its memory to itself; its instances tell theirs.
    own = _own_memory(device, identity.name) or (_Own(0, 0) if mig else None)
    if own is None:
        why = device.why("GetMemoryInfo")
        notes.add(
            f"{identity.name} ({identity.uuid}) does not tell its memory and is left out: {why}"
        )
        return None
    if own.unified:
        notes.add(unified_note(identity.name, memory))
    gpu = _gpu(device, identity, own, driver, memory)
    if not gpu.arch:
        why = device.why("GetCudaComputeCapability")
        notes.add(f"GPU {index} ({gpu.name}): its compute capability is not known: {why}")
    return _with_parts(device, gpu, notes) if mig else Card(gpu)


def _identity(device: NvmlDevice, index: int) -> _Identity:
    """The card's names. The driver's is empty where the card tells neither it nor its place."""
    place = bus_id(words(getattr(device.ask("GetPciInfo"), "busId", "")))
    uuid = device.text("GetUUID") or (f"PCI-{place}" if place else "")
    return _Identity(index, uuid, place, device.text("GetName") or "NVIDIA card of unknown name")


def _gpu(
    device: NvmlDevice, identity: _Identity, own: _Own, driver: str, memory: HostMemory
) -> Gpu:
    return Gpu(
        index=identity.index,
        uuid=identity.uuid,
        pci_bus_id=identity.place,
        vendor="nvidia",
        name=identity.name,
        arch=_arch(device),
        vram_bytes=own.total,
        vram_free_bytes=own.free,
        driver=driver,
        integrated=own.unified,
        # Not GetDisplayMode: it says "enabled" for an H200, which has no connector.
        display=bool(device.number("GetDisplayActive")),
        compute_mode=_compute_mode(device),
        link_generation=device.number("GetMaxPcieLinkGeneration"),
        link_width=device.number("GetMaxPcieLinkWidth"),
        shared_bytes=memory.total_bytes if own.unified else 0,
        cores=device.number("GetNumGpuCores"),
        clock_mhz=device.number("GetMaxClockInfo", _CLOCK_SM),
    )


def _own_memory(device: NvmlDevice, name: str) -> _Own | None:
    """The card's own memory; None when it is not known."""
    answer = device.ask("GetMemoryInfo")
    total, free = count(getattr(answer, "total", 0)), count(getattr(answer, "free", 0))
    if any(board in name for board in UNIFIED):
        return _Own(0, 0, unified=True)
    if total:
        return _Own(total, min(free, total))
    # On a GPU that uses the machine's memory there is nothing to tell, or zero.
    told_none = answer is not None or device.not_supported("GetMemoryInfo")
    return _Own(0, 0, unified=True) if told_none else None


def unified_note(name: str, memory: HostMemory) -> str:
    """What to say of a GPU whose driver reports no memory."""
    return (
        f"{name} reports no memory of its own: it is taken for one that shares the machine's "
        f"{memory.total_bytes / (1 << 30):.1f} GiB"
    )


def _in_parts(device: NvmlDevice) -> bool:
    mode = device.ask("GetMigMode")
    return isinstance(mode, list | tuple) and bool(mode) and count(mode[0]) == 1


def _with_parts(device: NvmlDevice, gpu: Gpu, notes: Notes) -> Card:
    parts, legacy = [], []
    for part in device.parts():
        answer, uuid = part.ask("GetMemoryInfo"), part.text("GetUUID")
        total, free = count(getattr(answer, "total", 0)), count(getattr(answer, "free", 0))
        if not (uuid and total):
            notes.add(f"a MIG instance of GPU {gpu.index} is left out: {part.why()}")
            continue
        name = part.text("GetName") or f"{gpu.name} MIG"
        parts.append(
            replace(gpu, uuid=uuid, name=name, vram_bytes=total, vram_free_bytes=min(free, total))
        )
        ids = part.number("GetGpuInstanceId"), part.number("GetComputeInstanceId")
        legacy.append(f"MIG-{gpu.uuid}/{ids[0]}/{ids[1]}")
    return Card(gpu, True, tuple(parts), tuple(legacy))


def _arch(device: NvmlDevice) -> str:
    answer = device.ask("GetCudaComputeCapability")
    if not (isinstance(answer, list | tuple) and len(answer) == 2 and count(answer[0])):
        return ""
    return f"{count(answer[0])}.{count(answer[1])}"


def _compute_mode(device: NvmlDevice) -> str:
    answer = device.ask("GetComputeMode")
    return COMPUTE_MODES.get(answer, "") if isinstance(answer, int) else ""
