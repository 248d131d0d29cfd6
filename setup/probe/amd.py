"""AMD GPUs in HIP's order, without those that the environment hides."""

from __future__ import annotations

from engine.hardware import Gpu
from engine.host_memory import HostMemory
from engine.system_files import whole
from setup.probe.amd_library import AmdFacts, library_facts
from setup.probe.kfd import KfdNode, kfd_nodes
from setup.probe.machine import Machine
from setup.probe.notes import Notes, plain
from setup.probe.pci import AMD, display_devices, has_screen, link
from setup.probe.visible import hip_visible

_KFD = "/dev/kfd"
_STRIX_HALO = "gfx1151"  # the one integrated GPU that the original runs models on
# GPUs inside a processor: the kernel does not mark all of them as such.
_INTEGRATED = {
    *("gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037"),
    *("gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
}
# By PCI device id, for kernels that report no product name.
_NAMES = {
    0x7448: "AMD Radeon PRO W7900",
    0x744C: "AMD Radeon RX 7900 XT/XTX",
    0x745E: "AMD Radeon PRO W7800",
    0x747E: "AMD Radeon RX 7700/7800 XT",
    0x7480: "AMD Radeon RX 7600",
    0x7550: "AMD Radeon RX 9070/9070 XT",
    0x7551: "AMD Radeon AI PRO R9700",
    0x7590: "AMD Radeon RX 9060 XT",
    0x73A5: "AMD Radeon RX 6950 XT",
    0x73AF: "AMD Radeon RX 6900 XT",
    0x73BF: "AMD Radeon RX 6800/6900 XT",
    0x73DF: "AMD Radeon RX 6700 XT",
    0x1586: "AMD Radeon 8050S/8060S",
}
_NO_FACTS = AmdFacts("", 0, 0, "")


def amd_gpus(machine: Machine, memory: HostMemory, notes: Notes) -> tuple[Gpu, ...]:
    """The AMD GPUs that a HIP program would see. Integrated ones are listed, marked as such."""
    nodes = kfd_nodes(machine)
    _tell_missing(machine, nodes, notes)
    if not nodes:
        return ()
    facts = library_facts(machine, notes)
    driver = plain(machine.read("/sys/module/amdgpu/version"))
    gpus = [
        _gpu(machine, memory, node, i, facts.get(node.place, _NO_FACTS), driver)
        for i, node in enumerate(nodes)
    ]
    return tuple(
        gpu for gpu in hip_visible(gpus, machine.environment, notes) if _tells_memory(gpu, notes)
    )


def _tells_memory(gpu: Gpu, notes: Notes) -> bool:
    if gpu.vram_bytes or gpu.integrated:
        return True
    notes.add(f"GPU {gpu.index}: {gpu.name} ({gpu.uuid}) does not tell its memory and is left out")
    return False


def _gpu(
    machine: Machine, memory: HostMemory, node: KfdNode, index: int, facts: AmdFacts, driver: str
) -> Gpu:
    folder = f"/sys/class/drm/renderD{node.render}/device"
    total = facts.vram_bytes or _bytes(machine, folder, "vram_total") or node.memory_bytes
    used = facts.vram_used_bytes or _bytes(machine, folder, "vram_used")
    integrated = _is_integrated(node)
    generation, lanes = (0, 0) if integrated else link(machine, node.place)
    return Gpu(
        index=index,
        uuid=f"GPU-{node.unique_id:016x}" if node.unique_id else f"PCI-{node.place}",
        pci_bus_id=node.place,
        vendor="amd",
        name=_name(machine, folder, node, facts),
        arch=node.arch,
        vram_bytes=total,
        vram_free_bytes=max(0, total - used),
        driver=facts.driver or driver,
        integrated=integrated,
        display=has_screen(machine, node.place),
        link_generation=generation,
        link_width=lanes,
        shared_bytes=_shared(machine, folder, memory) if integrated else 0,
        cores=node.cores,
        clock_mhz=node.clock_mhz,
    )


def _is_integrated(node: KfdNode) -> bool:
    return node.with_cpu or node.arch in _INTEGRATED


def _name(machine: Machine, folder: str, node: KfdNode, facts: AmdFacts) -> str:
    return (
        facts.name
        or plain(machine.read(f"{folder}/product_name"))
        or _NAMES.get(node.device)
        or f"AMD GPU {node.arch} (device {node.device:04x})"
    )


def _shared(machine: Machine, folder: str, memory: HostMemory) -> int:
    """Memory that the driver lends an integrated GPU (GTT); half of the machine's is its default.

    A control group may allow this process less.
    """
    lent = _bytes(machine, folder, "gtt_total") or memory.total_bytes // 2
    return min(lent, memory.total_bytes)


def _bytes(machine: Machine, folder: str, what: str) -> int:
    return whole(machine.read(f"{folder}/mem_info_{what}")) or 0


def _tell_missing(machine: Machine, nodes: tuple[KfdNode, ...], notes: Notes) -> None:
    """Notes about AMD cards that are on the bus and out of HIP's reach."""
    listed = {node.place for node in nodes}
    for device in display_devices(machine, AMD):
        if device.bus_id not in listed:
            name = _NAMES.get(device.device, f"AMD device {device.device:04x}")
            notes.add(
                f"{name} at {device.bus_id} is not in the kernel's list for HIP: it needs the "
                "amdgpu driver, and in a container the devices /dev/kfd and /dev/dri"
            )
    wanted = any(not _is_integrated(node) or node.arch == _STRIX_HALO for node in nodes)
    if wanted and not machine.may_use(_KFD):
        notes.add(
            f"this user may not open {_KFD}: HIP will find no card; add the user to the groups "
            "`render` and `video`, or give the container the device"
        )
