"""What surrounds the model and the engine: disk, WSL, container, desktop, memory nodes."""

from __future__ import annotations

import posixpath
import re

from setup.probe.machine import Machine
from setup.probe.processor import number_list

_NODES = "/sys/devices/system/node"
# Disks of a virtual machine say that they turn, whatever the host has.
_VIRTUAL = re.compile(r"/(vd|xvd)[a-z]+[0-9]*$")
_CONTAINER_WORDS = re.compile(
    r"/(docker|lxc|kubepods|libpod|containers?)[/.-]|/kubelet/pods/|cri-containerd"
)


def wsl(machine: Machine) -> bool:
    """Linux inside Windows: Microsoft builds its kernel."""
    return machine.os == "linux" and "microsoft" in machine.release


def container(machine: Machine) -> bool:
    """Docker, Podman, Kubernetes, LXC or systemd-nspawn around this process."""
    if ".dockerenv" in machine.names("/") or ".containerenv" in machine.names("/run"):
        return True
    if machine.environment.get("container") or machine.environment.get("KUBERNETES_SERVICE_HOST"):
        return True
    # Version 1 shows the way from the host; files of the runtime are mounted one by one.
    return bool(_CONTAINER_WORDS.search(machine.read("/proc/1/cgroup"))) or any(
        _CONTAINER_WORDS.search(line)
        for line in machine.read("/proc/self/mountinfo").splitlines()
        if re.search(r" /etc/(hosts|hostname|resolv\.conf) ", line)
    )


def desktop(machine: Machine) -> bool:
    """Somebody works at a screen of this Linux machine. A display forwarded by ssh is another's."""
    if machine.environment.get("WAYLAND_DISPLAY"):
        return True
    return machine.environment.get("DISPLAY", "").startswith((":", "unix:"))


def numa_nodes(machine: Machine) -> int:
    """Memory nodes with processors; a card's memory can be a node of its own and does not count."""
    with_cpu = number_list(machine.read(f"{_NODES}/has_cpu"))
    names = [name for name in machine.names(_NODES) if re.fullmatch(r"node[0-9]+", name)]
    return max(1, len(with_cpu) or len(names))


def disk_free(machine: Machine) -> int:
    """Free bytes where models are kept."""
    return max(0, machine.disk().free_bytes)


def rotational(machine: Machine) -> bool:
    """Whether models lie on a disk that turns; false where that cannot be known."""
    if machine.os != "linux" or wsl(machine):
        return False
    device = machine.disk().device
    found = machine.resolve(f"/sys/dev/block/{device}") if device else ""
    found = found or _by_source(machine, device)
    if not found or _VIRTUAL.search(found):
        return False
    # A partition has no queue of its own: it lies in the folder of its disk.
    folders = (found, posixpath.dirname(found))
    texts = (machine.read(f"{folder}/queue/rotational") for folder in folders)
    return next((text for text in texts if text), "").strip() == "1"


def _by_source(machine: Machine, device: str) -> str:
    """The disk under a file system that has a device number of its own, such as btrfs."""
    for line in machine.read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if len(place) > 2 and place[2] == device and len(kind) > 1 and kind[1].startswith("/dev/"):
            real = machine.resolve(kind[1]) or kind[1]
            return machine.resolve(f"/sys/class/block/{posixpath.basename(real)}")
    return ""
