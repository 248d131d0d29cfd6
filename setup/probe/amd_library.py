"""What AMD's library `amdsmi` adds to sysfs: market names, memory and the driver's version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from setup.probe.machine import Machine
from setup.probe.notes import Notes, reason
from setup.probe.nvml_device import count, words
from setup.probe.pci import bus_id

_MIB = 1 << 20
_MOST_CARDS = 64


@dataclass(frozen=True, slots=True)
class AmdFacts:
    """Of one GPU; empty or 0 where the library does not say."""

    name: str
    vram_bytes: int
    vram_used_bytes: int
    driver: str


def library_facts(machine: Machine, notes: Notes) -> dict[str, AmdFacts]:
    """By PCI bus id. Empty without the library, with a note when it is there and does not work."""
    try:
        library = machine.module("amdsmi")
    except ImportError:
        return {}
    except Exception as error:  # Loading it loads ROCm's libraries, which may fail in any way.
        notes.add(f"amdsmi cannot be used, sysfs is: {reason(error)}")
        return {}
    try:
        library.amdsmi_init()
    except Exception as error:
        notes.add(f"amdsmi does not start, sysfs is used: {reason(error)}")
        return {}
    try:
        return _all(library, notes)
    except Exception as error:
        notes.add(f"amdsmi does not answer, sysfs is used: {reason(error)}")
        return {}
    finally:
        notes.guard("closing amdsmi", lambda: library.amdsmi_shut_down(), None)


def _all(library: Any, notes: Notes) -> dict[str, AmdFacts]:
    found = {}
    for handle in list(library.amdsmi_get_processor_handles())[:_MOST_CARDS]:
        place = bus_id(words(_ask(library, "amdsmi_get_gpu_device_bdf", handle)))
        if not place:
            notes.add("amdsmi lists a GPU without a place on the PCI bus; it is left to sysfs")
            continue
        found[place] = AmdFacts(
            name=_known(_field(_ask(library, "amdsmi_get_gpu_asic_info", handle), "market_name")),
            vram_bytes=_vram(library, handle),
            vram_used_bytes=_memory(library, "amdsmi_get_gpu_memory_usage", handle),
            driver=_known(
                _field(_ask(library, "amdsmi_get_gpu_driver_info", handle), "driver_version")
            ),
        )
    return found


def _vram(library: Any, handle: Any) -> int:
    # The other function counts MiB.
    size = _field(_ask(library, "amdsmi_get_gpu_vram_info", handle), "vram_size")
    return _memory(library, "amdsmi_get_gpu_memory_total", handle) or count(size) * _MIB


def _memory(library: Any, function: str, handle: Any) -> int:
    kind = getattr(getattr(library, "AmdSmiMemoryType", None), "VRAM", None)
    return 0 if kind is None else count(_ask(library, function, handle, kind))


def _ask(library: Any, function: str, *args: Any) -> Any:
    try:
        return getattr(library, function)(*args)
    except Exception:  # Versions differ in what they offer; sysfs answers instead.
        return None


def _field(answer: object, name: str) -> object:
    return answer.get(name) if isinstance(answer, dict) else None


def _known(value: object) -> str:
    text = words(value)
    return "" if text in ("N/A", "Unknown") else text
