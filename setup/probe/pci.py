"""Display devices on the PCI bus, by sysfs: what is there, whether or not a driver answers."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from engine.system_files import whole
from setup.probe.machine import Machine
from setup.probe.notes import Notes

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086

_DEVICES = "/sys/bus/pci/devices"
_BUS_ID = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)
# By GT/s; older kernels write "8 GT/s", newer ones "8.0 GT/s PCIe".
_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
_MOST_LANES = 32


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A display device by its place and number, "0000:01:00.0" and 0x7551."""

    bus_id: str
    vendor: int
    device: int


def display_devices(machine: Machine, vendor: int) -> tuple[PciDevice, ...]:
    """The vendor's display devices in PCI bus order. Class 03 is display, 12 an accelerator."""
    found = []
    for name in machine.names(_DEVICES):
        if _BUS_ID.fullmatch(name) and _hexadecimal(machine, name, "vendor") == vendor:
            kind = _hexadecimal(machine, name, "class") >> 16
            if kind in (0x03, 0x12):
                found.append(PciDevice(name, vendor, _hexadecimal(machine, name, "device")))
    return tuple(sorted(found, key=lambda device: bus_order(device.bus_id)))


def tell_intel_cards(machine: Machine, notes: Notes) -> None:
    """Says of Intel's cards that they are not listed. Its GPUs in processors are on bus 00."""
    for device in display_devices(machine, INTEL):
        if bus_order(device.bus_id)[1] > 0:
            notes.add(
                f"Intel card {device.device:04x} at {device.bus_id}: this version does not use it"
            )


def bus_id(text: str) -> str:
    """A bus id as Linux writes it: NVML's "00000000:01:00.0" is "0000:01:00.0"; empty: it is none.

    A domain above ffff keeps its digits.
    """
    found = _BUS_ID.fullmatch(text.strip())
    if found is None:
        return ""
    domain, bus, device, function = found.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def bus_order(text: str) -> tuple[int, ...]:
    """Sorts bus ids; what is none comes last."""
    found = _BUS_ID.fullmatch(text)
    return tuple(int(part, 16) for part in found.groups()) if found else (1 << 32,)


def link(machine: Machine, place: str) -> tuple[int, int]:
    """PCI Express generation and lanes that a card can get; 0 where not known.

    The slowest step from the card to the processor counts: cards with a bridge on board are fast
    towards that bridge whatever their socket is.
    """
    steps = []
    folder = machine.resolve(f"{_DEVICES}/{place}")
    while _BUS_ID.fullmatch(posixpath.basename(folder)):
        steps.append(folder)
        folder = posixpath.dirname(folder)
    generations = [_generation(machine.read(f"{step}/max_link_speed")) for step in steps]
    lanes = [whole(machine.read(f"{step}/max_link_width")) or 0 for step in steps]
    return (
        min((generation for generation in generations if generation), default=0),
        min((count for count in lanes if 0 < count <= _MOST_LANES), default=0),
    )


def has_screen(machine: Machine, place: str) -> bool:
    """Whether a screen is plugged into a card, by its connectors."""
    folder = f"{_DEVICES}/{place}/drm"
    return any(
        machine.read(f"{folder}/{card}/{connector}/status").strip() == "connected"
        for card in machine.names(folder)
        if card.startswith("card")
        for connector in machine.names(f"{folder}/{card}")
        if connector.startswith(f"{card}-")
    )


def _generation(text: str) -> int:
    words = text.split()
    return _GENERATIONS.get(words[0].removesuffix(".0"), 0) if words else 0


def _hexadecimal(machine: Machine, name: str, file: str) -> int:
    text = machine.read(f"{_DEVICES}/{name}/{file}").strip()
    return int(text, 16) if re.fullmatch(r"0x[0-9a-f]{1,8}", text, re.IGNORECASE) else 0
