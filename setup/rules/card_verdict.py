"""Whether one card is usable: compute capability or architecture, driver, memory.

Limits of the original's setup 0.1.41. Memory is GiB; a "12 GB" card reports a little less, so that
a limit written "12 GB" is tested half a GB below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.hardware import Gpu, Hardware

NEWEST_LIMIT = (7, 5)
"""Compute capability of the RTX 20 series, the oldest that CUDA 13 compiles for."""
OLD_RANGE = ((6, 0), (7, 0))
"""Pascal and Volta: only when asked for."""
DRIVER_CUDA13 = 580
DRIVER_CUDA12 = {"linux": 525, "windows": 528}
AMD_ARCHS = ("gfx1100", "gfx1101", "gfx1200", "gfx1201", "gfx1030", "gfx1031", "gfx1151")
"""Compared as a whole: gfx1102 is not gfx1100."""
TRIAL_ARCH = "gfx1103"
APU_LEFT_GIB = 6.0
"""Memory of the machine that an integrated GPU leaves alone."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a card is usable, and why: a part of a sentence without its name."""

    usable: bool
    reason: str


@dataclass(frozen=True, slots=True)
class OptIns:
    """What the user agreed to: old NVIDIA cards with CUDA 12, and the trial of gfx1103."""

    cuda12: bool = False
    gfx1103: bool = False


NO_OPT_INS = OptIns()


def read_opt_ins(environment: Mapping[str, str], cuda: int | None = None) -> OptIns:
    """The opt-ins of an environment; `cuda` 12 as the config's `cuda` says it."""
    return OptIns(
        cuda12=cuda == 12 or environment.get("STRATA_EXPERIMENTAL_SM60", "").strip() == "1",
        gfx1103=environment.get("STRATA_EXPERIMENTAL_GFX1103", "").strip() == "1",
    )


def verdict(
    gpu: Gpu, hardware: Hardware, named: bool = False, opt_ins: OptIns = NO_OPT_INS
) -> Verdict:
    """Whether `gpu` of `hardware` is usable. `named`: the user asked for this very card."""
    if gpu.vendor == "nvidia":
        fault = _nvidia_fault(gpu, hardware, named, opt_ins)
    elif gpu.vendor == "amd":
        fault = _amd_fault(gpu, opt_ins)
    else:
        fault = f"a card of {gpu.vendor or 'an unknown maker'}: NVIDIA and AMD cards are supported"
    if not fault and not gpu.vram_bytes and not gpu.integrated:
        fault = "its memory is not known"
    return Verdict(not fault, fault or f"{architecture(gpu)}, {memory(gpu)}")


def capability(gpu: Gpu) -> tuple[int, int] | None:
    """The compute capability of an NVIDIA card, from "8.9" or "89"; `None`: not known."""
    found = re.fullmatch(r"(\d{1,3})\.(\d)|(\d{1,2})(\d)", gpu.arch.strip())
    if gpu.vendor != "nvidia" or not found:
        return None
    return int(found[1] or found[3]), int(found[2] or found[4])


def is_old(gpu: Gpu) -> bool:
    """True for Pascal and Volta, which only CUDA 12 compiles for."""
    number = capability(gpu)
    return number is not None and OLD_RANGE[0] <= number <= OLD_RANGE[1]


def identity(gpu: Gpu) -> str:
    """What tells one card from another: its UUID, else its bus id, else its place."""
    return gpu.uuid or gpu.pci_bus_id or f"{gpu.vendor} {gpu.index}"


def title(gpu: Gpu) -> str:
    """The card in a message: "GPU 0 (NVIDIA GeForce RTX 5070, 11.9 GiB)"."""
    return f"GPU {gpu.index} ({gpu.name}, {memory(gpu)})"


def memory(gpu: Gpu) -> str:
    """Its own memory in words; shared memory is never counted as a card's own."""
    own = f"{gpu.vram_gib:.1f} GiB" if gpu.vram_bytes else "no memory"
    return f"integrated, {own} of its own" if gpu.integrated else own


def architecture(gpu: Gpu) -> str:
    """Compute capability or gfx name, in words."""
    return f"compute capability {gpu.arch}" if gpu.vendor == "nvidia" else gpu.arch


def sizing_gib(gpu: Gpu, hardware: Hardware) -> float:
    """Memory in GiB that sizes context and slots.

    An integrated GPU counts what it may share, too: the recorded amount or half the machine's
    memory, and never the last 6 GiB. On an NVIDIA board all memory is the machine's.
    """
    if not gpu.integrated:
        return gpu.vram_gib
    left = max(0.0, hardware.ram_gib - APU_LEFT_GIB)
    shared = min(gpu.shared_bytes / (1 << 30) or hardware.ram_gib / 2, left)
    return max(gpu.vram_gib, shared) if gpu.vendor == "nvidia" else gpu.vram_gib + shared


def needs_cuda12(cards: tuple[Gpu, ...], opt_ins: OptIns = NO_OPT_INS) -> bool:
    """True when the oldest of the cards decides for CUDA 12, or the user did."""
    return any(gpu.vendor == "nvidia" and (is_old(gpu) or opt_ins.cuda12) for gpu in cards)


def _nvidia_fault(gpu: Gpu, hardware: Hardware, named: bool, opt_ins: OptIns) -> str:
    number = capability(gpu)
    if number is None:
        return f"its compute capability is {gpu.arch!r}, not a number such as 8.9"
    if number < NEWEST_LIMIT and not is_old(gpu):
        return f"compute capability {gpu.arch}, needed is 7.5 (RTX 20 series) or newer"
    if is_old(gpu) and not (named or opt_ins.cuda12 or _only_kind(hardware, opt_ins)):
        return (
            f"compute capability {gpu.arch} (Pascal or Volta) is used only when asked for, with "
            f"--gpu {gpu.index} or STRATA_EXPERIMENTAL_SM60=1"
        )
    return _driver_fault(gpu, hardware, is_old(gpu) or opt_ins.cuda12)


def _only_kind(hardware: Hardware, opt_ins: OptIns) -> bool:
    """True when old cards are all there is: no newer NVIDIA card, no supported AMD card."""
    newer = any((capability(other) or (0, 0)) >= NEWEST_LIMIT for other in hardware.gpus)
    return not newer and not any(
        other.vendor == "amd" and not _amd_fault(other, opt_ins) for other in hardware.gpus
    )


def _driver_fault(gpu: Gpu, hardware: Hardware, cuda12: bool) -> str:
    found = re.match(r"\d{1,6}", gpu.driver.strip())
    if not found:
        return ""
    # WSL reports the driver of the Windows around it.
    system = "windows" if hardware.wsl or hardware.os == "windows" else "linux"
    least = DRIVER_CUDA12[system] if cuda12 else DRIVER_CUDA13
    if int(found[0]) >= least:
        return ""
    toolkit = "CUDA 12" if cuda12 else "CUDA 13"
    return (
        f"driver {gpu.driver} is too old, {toolkit} needs {least} or newer: "
        "update the NVIDIA driver"
    )


def _amd_fault(gpu: Gpu, opt_ins: OptIns) -> str:
    if gpu.arch in AMD_ARCHS or (gpu.arch == TRIAL_ARCH and opt_ins.gfx1103):
        return ""
    if gpu.arch == TRIAL_ARCH:
        return f"{TRIAL_ARCH} is used only with STRATA_EXPERIMENTAL_GFX1103=1"
    kind = "an integrated GPU, " if gpu.integrated else ""
    return f"{kind}{gpu.arch or 'no architecture'} is not one of {', '.join(AMD_ARCHS)}"
