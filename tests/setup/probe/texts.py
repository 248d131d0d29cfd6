"""Texts of /proc and /sys as Linux writes them, for processors, memory and PCI devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.setup.probe.recorded import folder

CPU = "/sys/devices/system/cpu"
ZEN5 = (
    "fpu vme de pse tsc msr sse sse2 ht syscall nx sse4_1 sse4_2 popcnt aes xsave avx f16c fma "
    "bmi1 avx2 bmi2 avx512f avx512dq avx512ifma avx512cd avx512bw avx512vl avx512vbmi avx512_vnni"
)
RAPTOR_LAKE = (
    "fpu vme de pse tsc msr sse sse2 ht syscall nx sse4_1 sse4_2 popcnt aes xsave avx f16c fma "
    "bmi1 avx2 bmi2 avx_vnni"
)


@dataclass(frozen=True)
class Core:
    """A physical core: its socket, its number there, its logical processors."""

    socket: int
    number: int
    processors: tuple[int, ...]


def cores(count: int, threads: int = 2, sockets: int = 1) -> list[Core]:
    """`count` cores a socket, numbered as Linux does: the second threads come after all cores."""
    total = count * sockets
    return [
        Core(
            place // count,
            place % count,
            tuple(place + total * thread for thread in range(threads)),
        )
        for place in range(total)
    ]


def cpuinfo(name: str, flags: str, layout: Sequence[Core]) -> str:
    """/proc/cpuinfo, of each processor what the probe may read and some of what it may not."""
    blocks = {
        number: (
            f"processor\t: {number}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n"
            f"model name\t: {name}\nphysical id\t: {core.socket}\nsiblings\t: 16\n"
            f"core id\t\t: {core.number}\ncpu cores\t: 8\nflags\t\t: {flags}\n"
            "bogomips\t: 7600.00\npower management:\n"
        )
        for core in layout
        for number in core.processors
    }
    return "\n".join(blocks[number] for number in sorted(blocks))


def topology(layout: Sequence[Core]) -> dict[str, str]:
    """The files under /sys/devices/system/cpu that say which processors share a core."""
    files: dict[str, str] = {}
    for core in layout:
        for number in core.processors:
            files |= folder(
                f"{CPU}/cpu{number}/topology",
                core_cpus_list=",".join(map(str, core.processors)),
                physical_package_id=core.socket,
                core_id=core.number,
            )
    highest = max(number for core in layout for number in core.processors)
    return {**files, f"{CPU}/online": f"0-{highest}\n"}


def processor_files(name: str, flags: str, layout: Sequence[Core]) -> dict[str, str]:
    """All that a machine says about its processor."""
    return {"/proc/cpuinfo": cpuinfo(name, flags, layout), **topology(layout)}


def meminfo(total_kb: int, available_kb: int, swap_kb: int = 0) -> dict[str, str]:
    """/proc/meminfo."""
    return {
        "/proc/meminfo": (
            f"MemTotal:       {total_kb:8} kB\nMemFree:         1234568 kB\n"
            f"MemAvailable:   {available_kb:8} kB\nBuffers:          345672 kB\n"
            f"Cached:         18345672 kB\nSwapCached:            0 kB\n"
            f"HugePages_Total:       0\nSwapTotal:      {swap_kb:8} kB\n"
            f"SwapFree:       {swap_kb:8} kB\nHugepagesize:       2048 kB\n"
        )
    }


def pci_device(place: str, vendor: int, device: int, kind: int = 0x030000) -> dict[str, str]:
    """A device of /sys/bus/pci; display controllers are of class 03."""
    return pci_files(f"/sys/bus/pci/devices/{place}", vendor, device, kind)


def pci_files(path: str, vendor: int, device: int, kind: int = 0x030000) -> dict[str, str]:
    """The files that identify a PCI device, in its folder."""
    return {
        f"{path}/vendor": f"0x{vendor:04x}\n",
        f"{path}/device": f"0x{device:04x}\n",
        f"{path}/class": f"0x{kind:06x}\n",
    }


def kfd_node(number: int, **facts: int) -> dict[str, str]:
    """A node of the kernel's compute driver; a processor's has no SIMD units."""
    node = {"cpu_cores_count": 0, "simd_count": 0, "gfx_target_version": 0, **facts}
    text = "".join(f"{name} {value}\n" for name, value in node.items())
    return {f"/sys/class/kfd/kfd/topology/nodes/{number}/properties": text}


def amd_card(
    node: int, place: str, gfx: int, device: int, render: int, vram: int, gtt: int, **facts: int
) -> dict[str, str]:
    """A GPU of AMD: its KFD node, and what the amdgpu driver says about it."""
    domain, bus, rest = place.split(":")
    slot, function = rest.split(".")
    location = int(bus, 16) << 8 | int(slot, 16) << 3 | int(function)
    render_folder = f"/sys/class/drm/renderD{render}/device"
    return {
        **kfd_node(
            node,
            gfx_target_version=gfx,
            location_id=location,
            domain=int(domain, 16),
            device_id=device,
            vendor_id=0x1002,
            drm_render_minor=render,
            **{"simd_count": 128, "simd_per_cu": 2, "max_engine_clk_fcompute": 2920, **facts},
        ),
        **folder(
            render_folder,
            mem_info_vram_total=vram,
            mem_info_vram_used=512 << 20,
            mem_info_gtt_total=gtt,
        ),
        **pci_device(place, 0x1002, device),
    }
