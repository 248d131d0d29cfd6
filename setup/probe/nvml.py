"""NVIDIA cards by NVML, through the `pynvml` module of nvidia-ml-py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from engine.hardware import Gpu
from engine.host_memory import HostMemory
from setup.probe.notes import Notes, plain, reason
from setup.probe.pci import bus_id, bus_order
from setup.probe.visible import Card

COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
# Boards whose GPU has no memory of its own; some drivers report the machine's memory as the card's.
UNIFIED = ("GB10", "Thor", "Orin", "Xavier")

_MOST_CARDS = 64
_MOST_INSTANCES = 8
_CLOCK_SM = 1


class NvmlUnusableError(Exception):
    """NVML does not answer at all."""


class _Device:
    """Asks NVML about one device, and remembers what it did not answer."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self.errors: dict[str, Exception] = {}

    def ask(self, function: str, *args: Any) -> Any:
        """The answer of `nvmlDevice...`; None where there is none."""
        try:
            return getattr(self._nvml, f"nvmlDevice{function}")(self._handle, *args)
        except Exception as error:  # NVML has some 30 error classes; ctypes and OS errors come too.
            self.errors[function] = error
            return None

    def number(self, function: str, *args: Any) -> int:
        """A number from 0; 0 where there is no answer."""
        return count(self.ask(function, *args))

    def text(self, function: str) -> str:
        return words(self.ask(function))

    def not_supported(self, function: str) -> bool:
        """Whether NVML said that this device has no such thing."""
        kind = getattr(self._nvml, "NVMLError_NotSupported", ())
        return isinstance(self.errors.get(function), kind)

    def parts(self) -> Iterator[_Device]:
        """The MIG instances of the card; there are gaps between their numbers."""
        for i in range(min(self.number("GetMaxMigDeviceCount"), _MOST_INSTANCES)):
            handle = self.ask("GetMigDeviceHandleByIndex", i)
            if handle is not None:
                yield _Device(self._nvml, handle)


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
            device = _Device(nvml, nvml.nvmlDeviceGetHandleByIndex(i))
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
    device: _Device, index: int, driver: str, memory: HostMemory, notes: Notes
) -> Card | None:
    place = bus_id(words(getattr(device.ask("GetPciInfo"), "busId", "")))
    uuid = device.text("GetUUID") or (f"PCI-{place}" if place else "")
    name = device.text("GetName") or "NVIDIA card of unknown name"
    if not uuid:
        notes.add(f"NVIDIA card {index} ({name}) has no identity and is left out: {_why(device)}")
        return None
    mig = _in_parts(device)
    own = _own_memory(device, name, uuid, memory, notes, mig)
    if own is None:
        return None
    gpu = Gpu(
        index=index,
        uuid=uuid,
        pci_bus_id=place,
        vendor="nvidia",
        name=name,
        arch=_arch(device),
        vram_bytes=own[0],
        vram_free_bytes=own[1],
        driver=driver,
        integrated=own[0] == 0 and not mig,
        display=bool(device.number("GetDisplayActive") or device.number("GetDisplayMode")),
        compute_mode=_compute_mode(device),
        link_generation=device.number("GetMaxPcieLinkGeneration"),
        link_width=device.number("GetMaxPcieLinkWidth"),
        shared_bytes=0 if own[0] or mig else memory.total_bytes,
        cores=device.number("GetNumGpuCores"),
        clock_mhz=device.number("GetMaxClockInfo", _CLOCK_SM),
    )
    if not gpu.arch:
        notes.add(f"GPU {index} ({name}): its compute capability is not known: {_why(device)}")
    return _with_parts(device, gpu, notes) if mig else Card(gpu)


def _own_memory(
    device: _Device, name: str, uuid: str, memory: HostMemory, notes: Notes, mig: bool
) -> tuple[int, int] | None:
    """Total and free bytes; zeros for a GPU that uses the machine's; None when they are unknown."""
    answer = device.ask("GetMemoryInfo")
    total, free = count(getattr(answer, "total", 0)), count(getattr(answer, "free", 0))
    unified = any(board in name for board in UNIFIED)
    if answer is not None and total and not unified:
        return total, min(free, total)
    if mig:
        # Its instances tell theirs; a container may not be allowed to ask the card.
        return 0, 0
    if unified or answer is not None or device.not_supported("GetMemoryInfo"):
        notes.add(unified_note(name, memory))
        return 0, 0
    why = reason(device.errors["GetMemoryInfo"])
    notes.add(f"{name} ({uuid}) does not tell its memory and is left out: {why}")
    return None


def unified_note(name: str, memory: HostMemory) -> str:
    """What to say of a GPU whose driver reports no memory."""
    return (
        f"{name} reports no memory of its own: it is taken for one that shares the machine's "
        f"{memory.total_bytes / (1 << 30):.1f} GiB"
    )


def _in_parts(device: _Device) -> bool:
    mode = device.ask("GetMigMode")
    return isinstance(mode, list | tuple) and bool(mode) and count(mode[0]) == 1


def _with_parts(device: _Device, gpu: Gpu, notes: Notes) -> Card:
    parts, legacy = [], []
    for part in device.parts():
        answer, uuid = part.ask("GetMemoryInfo"), part.text("GetUUID")
        total, free = count(getattr(answer, "total", 0)), count(getattr(answer, "free", 0))
        if not (uuid and total):
            notes.add(f"a MIG instance of GPU {gpu.index} is left out: {_why(part)}")
            continue
        name = part.text("GetName") or f"{gpu.name} MIG"
        parts.append(
            replace(gpu, uuid=uuid, name=name, vram_bytes=total, vram_free_bytes=min(free, total))
        )
        ids = part.number("GetGpuInstanceId"), part.number("GetComputeInstanceId")
        legacy.append(f"MIG-{gpu.uuid}/{ids[0]}/{ids[1]}")
    return Card(gpu, True, tuple(parts), tuple(legacy))


def _arch(device: _Device) -> str:
    answer = device.ask("GetCudaComputeCapability")
    if not (isinstance(answer, list | tuple) and len(answer) == 2 and count(answer[0])):
        return ""
    return f"{count(answer[0])}.{count(answer[1])}"


def _compute_mode(device: _Device) -> str:
    answer = device.ask("GetComputeMode")
    return COMPUTE_MODES.get(answer, "") if isinstance(answer, int) else ""


def _why(device: _Device) -> str:
    error = next(iter(device.errors.values()), None)
    return "no answer" if error is None else reason(error)


def count(value: object) -> int:
    """A number from 0 below 2^63; 0 for anything else."""
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return value if known and isinstance(value, int) else 0


def words(value: object) -> str:
    """A text on one line; older versions of pynvml give bytes."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="replace")
    return plain(value) if isinstance(value, str) else ""
