"""NVIDIA cards: by NVML, else by nvidia-smi, without those that the environment hides."""

from __future__ import annotations

from engine.hardware import Gpu
from engine.host_memory import HostMemory
from setup.probe.machine import Machine
from setup.probe.notes import Notes, reason
from setup.probe.nvidia_smi import smi_gpus
from setup.probe.nvml import NvmlUnusableError, nvml_cards
from setup.probe.pci import NVIDIA, display_devices
from setup.probe.system import container
from setup.probe.visible import Card, cuda_visible

# What NVML says on a machine that simply has no NVIDIA card.
_NO_DRIVER = ("NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded")


def nvidia_gpus(machine: Machine, memory: HostMemory, notes: Notes) -> tuple[Gpu, ...]:
    """The NVIDIA cards that a CUDA program would see, in PCI bus order."""
    try:
        cards = nvml_cards(machine.module("pynvml"), memory, notes)
        _tell_missing(machine, cards, notes)
    except Exception as error:  # An import may raise anything: OSError for a broken library.
        cards = _without_nvml(machine, memory, error, notes)
    return cuda_visible(cards, machine.environment, notes)


def _tell_missing(machine: Machine, cards: tuple[Card, ...], notes: Notes) -> None:
    """A card on the bus that the driver does not have: lost, or given to a virtual machine."""
    offered = {card.gpu.pci_bus_id for card in cards}
    present = [device.bus_id for device in display_devices(machine, NVIDIA)]
    missing = [place for place in present if place not in offered]
    # A container sees the whole bus, and is given some of its cards.
    if missing and not container(machine):
        notes.add(f"NVIDIA cards that the driver does not offer: {', '.join(missing)}")


def _without_nvml(
    machine: Machine, memory: HostMemory, error: Exception, notes: Notes
) -> tuple[Card, ...]:
    gpus = smi_gpus(machine, memory, notes)
    present = display_devices(machine, NVIDIA)
    if gpus:
        notes.add(f"NVIDIA cards were read with nvidia-smi, NVML cannot be used: {reason(error)}")
    elif present or not _is_absence(error):
        places = ", ".join(device.bus_id for device in present) or "not on the PCI bus"
        notes.add(
            f"NVML cannot be used: {reason(error)}; NVIDIA cards: {places}. "
            f"Without a working driver they cannot be used. {_advice(error)}"
        )
    return tuple(Card(gpu) for gpu in gpus)


def _is_absence(error: Exception) -> bool:
    """Whether NVML is missing, as it is where there is no card, and not broken."""
    if isinstance(error, ImportError):
        return True
    cause = error.__cause__ if isinstance(error, NvmlUnusableError) else None
    return type(cause).__name__ in _NO_DRIVER


def _advice(error: Exception) -> str:
    if "mismatch" in reason(error).lower():
        return "Restart the machine: the driver was updated while its older version was running."
    if "permission" in reason(error).lower():
        return "Give this user (or container) the device files /dev/nvidia*."
    return "Install or repair the NVIDIA driver, and check it with nvidia-smi."
