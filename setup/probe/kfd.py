"""AMD GPUs as the kernel's compute driver (KFD) lists them: the list that HIP numbers.

Source: the kernel's KFD topology in sysfs; the encoding of gfx versions is the original's
setup 0.1.40.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from setup.probe.machine import Machine

_NODES = "/sys/class/kfd/kfd/topology/nodes"
_MOST_NODES = 256
_LANES = 64  # stream processors of a compute unit


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A GPU of the list. `place` is its PCI bus id, `render` its number in /dev/dri/renderD*."""

    place: str
    arch: str
    device: int
    render: int
    unique_id: int
    with_cpu: bool
    cores: int
    clock_mhz: int
    memory_bytes: int


def kfd_nodes(machine: Machine) -> tuple[KfdNode, ...]:
    """The GPUs in HIP's order. Processors are nodes, too, and left out; so are GPUs that this
    process has no right to, whose files read as empty."""
    numbers = [int(name) for name in machine.names(_NODES) if re.fullmatch(r"[0-9]{1,6}", name)]
    found = []
    for number in sorted(numbers)[:_MOST_NODES]:
        facts = _facts(machine.read(f"{_NODES}/{number}/properties"))
        if facts.get("gfx_target_version") and facts.get("simd_count"):
            found.append(_node(machine, number, facts))
    return tuple(found)


def gfx_name(version: int) -> str:
    """120001 is "gfx1201", 90010 is "gfx90a": decimal major, hexadecimal minor and stepping."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _node(machine: Machine, number: int, facts: dict[str, int]) -> KfdNode:
    location = facts.get("location_id", 0)
    place = (
        f"{facts.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:"
        f"{location >> 3 & 0x1F:02x}.{location & 7}"
    )
    units = facts["simd_count"] // (facts.get("simd_per_cu") or 2)
    return KfdNode(
        place=place,
        arch=gfx_name(facts["gfx_target_version"]),
        device=facts.get("device_id", 0),
        render=facts.get("drm_render_minor", 0),
        unique_id=facts.get("unique_id", 0),
        with_cpu=facts.get("cpu_cores_count", 0) > 0,
        cores=units * _LANES,
        clock_mhz=facts.get("max_engine_clk_fcompute", 0),
        memory_bytes=_bank_bytes(machine, number),
    )


def _bank_bytes(machine: Machine, number: int) -> int:
    """Memory of the node; heap types 1 and 2 are the card's own."""
    folder = f"{_NODES}/{number}/mem_banks"
    banks = [_facts(machine.read(f"{folder}/{name}/properties")) for name in machine.names(folder)]
    return sum(b.get("size_in_bytes", 0) for b in banks if b.get("heap_type") in (1, 2))


def _facts(text: str) -> dict[str, int]:
    # unique_id has up to 20 digits.
    return {name: int(n) for name, n in re.findall(r"^(\w+) (\d{1,20})$", text, re.M | re.A)}
