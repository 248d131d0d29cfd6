"""Recorded machines with AMD cards or none."""

from __future__ import annotations

from tests.setup.probe.recorded import Recorded, folder
from tests.setup.probe.texts import (
    RAPTOR_LAKE,
    ZEN5,
    amd_card,
    cores,
    kfd_node,
    meminfo,
    pci_device,
    pci_files,
    processor_files,
)

GIB = 1 << 30
MIB = 1 << 20
ROOT = "/sys/devices/pci0000:00"


def cgroup_v1() -> Recorded:
    """A batch job on an older server: cgroup version 1, the limit on the group above the job's.

    The container's own group is mounted as the root, and its path still starts at the host's root.
    """
    mounts = (
        "31 23 0:26 / /sys/fs/cgroup rw - tmpfs cgroup rw,mode=755\n"
        "33 31 0:28 /slurm /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"
        "34 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
    )
    memory = "/sys/fs/cgroup/memory"
    return Recorded(
        files={
            **processor_files("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", RAPTOR_LAKE, cores(14)),
            **meminfo(131_900_000, 90_000_000, 4_194_300),
            "/proc/self/cgroup": (
                "11:memory:/slurm/uid_1000/job_42/step_0\n4:cpu,cpuacct:/slurm\n1:name=systemd:/\n"
            ),
            "/proc/self/mountinfo": mounts,
            f"{memory}/memory.limit_in_bytes": "9223372036854771712\n",
            f"{memory}/memory.usage_in_bytes": f"{60 * GIB}\n",
            f"{memory}/uid_1000/job_42/memory.limit_in_bytes": f"{32 * GIB}\n",
            f"{memory}/uid_1000/job_42/memory.memsw.limit_in_bytes": f"{33 * GIB}\n",
            f"{memory}/uid_1000/job_42/memory.usage_in_bytes": f"{12 * GIB}\n",
            f"{memory}/uid_1000/job_42/memory.stat": (
                f"cache {GIB}\ntotal_inactive_file {GIB}\ntotal_active_file {GIB}\n"
            ),
            f"{memory}/uid_1000/job_42/step_0/memory.limit_in_bytes": "9223372036854771712\n",
            "/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us": "450000\n",
            "/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us": "100000\n",
        },
        numbers=range(28),
    )


def two_sockets() -> Recorded:
    """A server with two sockets of 16 cores, four memory nodes of which one has memory only, and a
    disk that turns. The process is pinned to the first socket."""
    disk = f"{ROOT}/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda"
    return Recorded(
        files={
            **processor_files("Intel(R) Xeon(R) Gold 6426Y", ZEN5, cores(16, sockets=2)),
            **meminfo(527_900_000, 510_000_000),
            "/sys/devices/system/node/has_cpu": "0-1\n",
            "/sys/devices/system/node/node2/meminfo": "Node 2 MemTotal: 1 kB\n",
            **folder(f"{disk}/queue", rotational=1),
        },
        links={"/sys/dev/block/8:1": f"{disk}/sda1"},
        device="8:1",
        numbers=[*range(16), *range(32, 48)],
    )


def apu_and_card() -> Recorded:
    """A Ryzen desktop: an RX 9070 XT behind the bridge on its board, and the processor's own GPU
    with 512 MB set aside for it. The card's slot gives 8 lanes of generation 4."""
    card = f"{ROOT}/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0"
    slow = {"max_link_speed": "16.0 GT/s PCIe", "max_link_width": "8"}
    fast = {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}
    return Recorded(
        files={
            **processor_files("AMD Ryzen 7 7700 8-Core Processor", ZEN5, cores(8)),
            **meminfo(65_000_000, 55_000_000),
            **kfd_node(0, cpu_cores_count=16),
            **amd_card(
                1, "0000:03:00.0", 120001, 0x7550, 128, 16304 * MIB, 31 * GIB, unique_id=0xABC
            ),
            **amd_card(2, "0000:0e:00.0", 100306, 0x164E, 129, 512 * MIB, 30 * GIB, simd_count=4),
            **folder(f"{ROOT}/0000:00:01.1", **slow),
            **folder(f"{ROOT}/0000:00:01.1/0000:01:00.0", **fast),
            **folder(card, **fast),
            **pci_files(card, 0x1002, 0x7550),
            f"{card}/drm/card1/card1-DP-1/status": "disconnected\n",
            f"{card}/drm/card1/card1-HDMI-A-1/status": "connected\n",
            "/sys/bus/pci/devices/0000:0e:00.0/drm/card2/card2-DP-4/status": "disconnected\n",
        },
        links={"/sys/bus/pci/devices/0000:03:00.0": card},
        environment={"DISPLAY": ":0"},
        numbers=range(16),
    )


def four_r9700(environment: dict[str, str] | None = None) -> Recorded:
    """Four R9700 in a Threadripper; the kernel names none of them."""
    files = {
        **processor_files("AMD Ryzen Threadripper 9960X 24-Cores", ZEN5, cores(24)),
        **meminfo(263_800_000, 250_000_000),
        **kfd_node(0, cpu_cores_count=48),
    }
    for i, bus in enumerate(("03", "23", "43", "c3")):
        place = f"0000:{bus}:00.0"
        files |= amd_card(
            i + 1, place, 120001, 0x7551, 128 + i, 32624 * MIB, 125 * GIB, unique_id=0xA0 + i
        )
    return Recorded(files=files, environment=environment or {}, numbers=range(48))


def strix_halo() -> Recorded:
    """A Ryzen AI Max+ 395 with 128 GB, of which 96 GB are the GPU's own by the firmware."""
    return Recorded(
        files={
            **processor_files("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", ZEN5, cores(16)),
            **meminfo(32_500_000, 28_000_000),
            **kfd_node(0, cpu_cores_count=32),
            **amd_card(1, "0000:c5:00.0", 110501, 0x1586, 128, 96 * GIB, 15 * GIB, simd_count=80),
            **pci_device("0000:c5:00.1", 0x1002, 0x1640, 0x040300),
        },
        numbers=range(32),
    )
