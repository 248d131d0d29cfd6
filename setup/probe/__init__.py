"""Finds the facts of a machine. Needs only pynvml and psutil, and does without them too.

Everything that touches the machine goes through `Machine`, so that every rule is tested from
recordings. Whatever cannot be found out is 0, empty or false, with a note; `probe` never raises.
"""

from __future__ import annotations

from engine.control_groups import cpu_limit
from engine.hardware import Cpu, Gpu, Hardware
from engine.host_memory import HostMemory, host_memory
from setup.probe import system
from setup.probe.amd import amd_gpus
from setup.probe.machine import Machine, ThisMachine
from setup.probe.notes import Notes
from setup.probe.nvidia import nvidia_gpus
from setup.probe.pci import tell_intel_cards
from setup.probe.processor import processor, usable_processors

__all__ = ["Machine", "ThisMachine", "probe"]


def probe(machine: Machine) -> Hardware:
    """The facts of `machine`."""
    notes = Notes()
    memory = notes.guard(
        "memory", lambda: host_memory(machine.read, machine.counted_memory), HostMemory(0, 0)
    )
    gpus = _gpus(machine, memory, notes)
    nothing = Cpu(name="", cores=1, avx2=False, avx512=False)
    return Hardware(
        gpus=gpus,
        ram_bytes=memory.total_bytes,
        ram_available_bytes=memory.available_bytes,
        cpu=notes.guard("the processor", lambda: processor(machine), nothing),
        disk_free_bytes=notes.guard("the disk", lambda: system.disk_free(machine), 0),
        os=machine.os,
        wsl=notes.guard("WSL", lambda: system.wsl(machine), False),
        swap_bytes=memory.swap_bytes,
        memory_limit_bytes=memory.limit_bytes,
        cpu_limit=notes.guard("processor limits", lambda: _cpu_limit(machine), 0.0),
        container=notes.guard("the container", lambda: system.container(machine), False),
        numa_nodes=notes.guard("NUMA nodes", lambda: system.numa_nodes(machine), 1),
        disk_rotational=notes.guard("the disk's kind", lambda: system.rotational(machine), False),
        desktop=notes.guard("the desktop", lambda: system.desktop(machine), False),
        torch_cuda=notes.guard("PyTorch", lambda: machine.torch_cuda(), False),
        notes=notes.all(),
    )


def _cpu_limit(machine: Machine) -> float:
    return cpu_limit(machine.read, len(usable_processors(machine)))


def _gpus(machine: Machine, memory: HostMemory, notes: Notes) -> tuple[Gpu, ...]:
    none: tuple[Gpu, ...] = ()
    nvidia = notes.guard("NVIDIA cards", lambda: nvidia_gpus(machine, memory, notes), none)
    amd = notes.guard("AMD cards", lambda: amd_gpus(machine, memory, notes), none)
    notes.guard("Intel cards", lambda: tell_intel_cards(machine, notes), None)
    return _distinct(nvidia + amd, notes)


def _distinct(gpus: tuple[Gpu, ...], notes: Notes) -> tuple[Gpu, ...]:
    """The cards, without any that says to be one that came before it."""
    found: dict[str, Gpu] = {}
    for gpu in gpus:
        if found.setdefault(gpu.uuid, gpu) is not gpu:
            notes.add(f"{gpu.name} ({gpu.uuid}) is listed twice: the second is left out")
    return tuple(found.values())
