"""Where a model runs: the card that was asked for, the first usable one, or the processor."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.capabilities import THIS_VERSION, Capabilities
from engine.errors import ConfigError
from engine.hardware import Gpu, Hardware

LEAST_CAPABILITY = (8, 0)
"""The oldest compute capability that the kernels are compiled for: the A100 and RTX 30 series."""

_CPU_HINT = "--device cpu runs the model on the processor"


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """A card, or `None` for the processor, and why."""

    card: Gpu | None
    reason: str

    @property
    def name(self) -> str:
        """`cpu`, or `cuda:N` with the card's number as the user sees it."""
        return "cpu" if self.card is None else f"cuda:{self.card.index}"


def choose_device(
    asked: str | None, hardware: Hardware, capabilities: Capabilities = THIS_VERSION
) -> DeviceChoice:
    """The device for `--device asked`: cpu, auto (or nothing), cuda, or cuda:N.

    Raises `ConfigError` for a card that is asked for by name and is missing or of no use.
    """
    if asked == "hip":
        return DeviceChoice(None, capabilities.missing("hip"))
    if asked == "cpu":
        return DeviceChoice(None, _idle(hardware, "as asked"))
    faults = [card_fault(gpu, hardware, capabilities) for gpu in hardware.gpus]
    usable = [gpu for gpu, fault in zip(hardware.gpus, faults, strict=True) if not fault]
    number = re.fullmatch(r"cuda:(\d+)", asked or "")
    if number:
        return DeviceChoice(_numbered(int(number[1]), hardware, capabilities), "as asked")
    if usable:
        others = f", the first of {len(usable)} usable cards" if len(usable) > 1 else ""
        return DeviceChoice(usable[0], f"{_title(usable[0])}{others}")
    if asked == "cuda":
        raise ConfigError(
            f"device cuda: {_nothing(hardware, faults)}", f"{_remedy(hardware)}{_CPU_HINT}"
        )
    return DeviceChoice(None, _idle(hardware, hardware.cpu.name, faults))


def card_fault(gpu: Gpu, hardware: Hardware, capabilities: Capabilities = THIS_VERSION) -> str:
    """Why this version cannot compute on a card; empty when it can."""
    if not gpu.backend:
        return f"a card of {gpu.vendor or 'an unknown maker'}"
    if not capabilities.has(gpu.backend):
        return capabilities.missing(gpu.backend)
    if gpu.vendor != "nvidia":
        return ""
    number = capability(gpu)
    if number is None:
        return f"its compute capability is {gpu.arch!r}, not a number such as 8.9"
    if number < LEAST_CAPABILITY:
        return f"compute capability {gpu.arch}, this version needs 8.0 (RTX 30 series) or newer"
    if not gpu.vram_bytes:
        return "its memory is not known"
    return "" if hardware.torch_cuda else "PyTorch is installed here without CUDA"


def capability(gpu: Gpu) -> tuple[int, int] | None:
    """The compute capability of an NVIDIA card, from "8.9" or "89"; `None`: not known."""
    found = re.fullmatch(r"(\d{1,3})\.(\d)|(\d{1,2})(\d)", gpu.arch.strip())
    if gpu.vendor != "nvidia" or not found:
        return None
    return int(found[1] or found[3]), int(found[2] or found[4])


def _numbered(number: int, hardware: Hardware, capabilities: Capabilities) -> Gpu:
    cards = [gpu for gpu in hardware.gpus if gpu.backend == "cuda"]
    card = next((gpu for gpu in cards if gpu.index == number), None)
    if card is None:
        have = ", ".join(f"cuda:{gpu.index} = {gpu.name}" for gpu in cards)
        count = f"{len(cards)} NVIDIA card{'' if len(cards) == 1 else 's'}"
        raise ConfigError(
            f"device cuda:{number}: this machine has {count if cards else 'no NVIDIA card'}",
            f"there {'is' if len(cards) == 1 else 'are'} {have}" if cards else _CPU_HINT,
        )
    fault = card_fault(card, hardware, capabilities)
    if fault:
        raise ConfigError(
            f"device cuda:{number} ({card.name}): {fault}", f"{_remedy(hardware)}{_CPU_HINT}"
        )
    return card


def _nothing(hardware: Hardware, faults: list[str]) -> str:
    if not hardware.gpus:
        return "this machine has no NVIDIA card"
    return "; ".join(
        f"{_title(gpu)} cannot be used: {fault}"
        for gpu, fault in zip(hardware.gpus, faults, strict=True)
    )


def _remedy(hardware: Hardware) -> str:
    """Cards are there, and it is PyTorch that cannot use them."""
    if hardware.torch_cuda or not hardware.gpus:
        return ""
    return "install PyTorch for CUDA (https://pytorch.org/get-started); "


def _idle(hardware: Hardware, why: str, faults: list[str] | None = None) -> str:
    """A reason for the processor that names the cards which it leaves idle."""
    if faults is None:
        count = len(hardware.gpus)
        idle = "1 GPU stays idle" if count == 1 else f"{count} GPUs stay idle"
        return f"{why}; {idle}" if count else why
    return "; ".join((why, _nothing(hardware, faults))) if hardware.gpus else why


def _title(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.name}, {gpu.vram_gib:.1f} GiB)"
