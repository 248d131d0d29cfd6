"""Recorded machines with NVIDIA cards, as Linux, NVML and the environment describe them."""

from __future__ import annotations

from tests.setup.probe.fake_nvml import GIB, MIB, NOT_SUPPORTED, FakeCard, FakeNvml, error
from tests.setup.probe.recorded import Recorded, folder
from tests.setup.probe.texts import (
    CPU,
    RAPTOR_LAKE,
    ZEN5,
    Core,
    cores,
    meminfo,
    pci_device,
    processor_files,
)

RTX_5070 = FakeCard(display=True)
NVME = "/sys/devices/pci0000:00/0000:00:01.1/0000:02:00.0/nvme/nvme0/nvme0n1"
DISK_OF_PARTITION = {"/sys/dev/block/259:2": f"{NVME}/nvme0n1p2"}


def desktop() -> Recorded:
    """A desktop with one card, a 64 GB machine, and a screen at the card."""
    return Recorded(
        files={
            **processor_files("AMD Ryzen 7 9700X 8-Core Processor", ZEN5, cores(8)),
            **meminfo(65_345_612, 51_234_560, 8_388_604),
            **pci_device("0000:01:00.0", 0x10DE, 0x2F04),
            **folder(f"{NVME}/queue", rotational=0),
            "/sys/devices/system/node/has_cpu": "0\n",
            "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-2.scope\n",
            "/sys/fs/cgroup/user.slice/memory.max": "max\n",
            "/sys/fs/cgroup/user.slice/cpu.max": "max 100000\n",
        },
        links=DISK_OF_PARTITION,
        modules={"pynvml": FakeNvml(RTX_5070)},
        environment={"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"},
        numbers=range(16),
    )


def laptop() -> Recorded:
    """A laptop with hybrid graphics: Intel's GPU has the screen, NVIDIA's has none, and an 8P+16E
    processor: processors 0 to 15 are two threads of each fast core."""
    layout = [
        *(Core(0, 4 * i, (2 * i, 2 * i + 1)) for i in range(8)),
        *(Core(0, 32 + i, (16 + i,)) for i in range(16)),
    ]
    return Recorded(
        files={
            **processor_files("13th Gen Intel(R) Core(TM) i9-13980HX", RAPTOR_LAKE, layout),
            **meminfo(32_560_412, 24_116_220, 2_097_148),
            **pci_device("0000:00:02.0", 0x8086, 0xA788),
            **pci_device("0000:01:00.0", 0x10DE, 0x2757),
            "/sys/devices/cpu_core/cpus": "0-15\n",
            "/sys/devices/cpu_atom/cpus": "16-31\n",
        },
        modules={
            "pynvml": FakeNvml(
                FakeCard(
                    name="NVIDIA GeForce RTX 4090 Laptop GPU",
                    total=16376 * MIB,
                    free=15900 * MIB,
                    capability=(8, 9),
                    link=(4, 8),
                    fails={"GetDisplayActive": error(NOT_SUPPORTED)},
                ),
            )
        },
        environment={"DISPLAY": ":1"},
        numbers=range(32),
    )


def wsl2() -> Recorded:
    """Windows' Linux: half of the memory, no PCI bus to look at, and NVML that says less."""
    return Recorded(
        files={
            **processor_files("AMD Ryzen 9 7950X 16-Core Processor", ZEN5, cores(16)),
            **meminfo(32_782_916, 30_100_000, 8_388_608),
            "/sys/dev/block/259:2/queue/rotational": "1\n",
            "/proc/self/cgroup": "0::/\n",
        },
        modules={
            "pynvml": FakeNvml(
                FakeCard(
                    name="NVIDIA GeForce RTX 4090",
                    total=24564 * MIB,
                    free=22900 * MIB,
                    capability=(8, 9),
                    link=(4, 16),
                    fails={"GetDisplayActive": error(NOT_SUPPORTED)},
                ),
                driver="581.15",
            )
        },
        environment={"WAYLAND_DISPLAY": "wayland-0"},
        release="6.6.87.2-microsoft-standard-wsl2",
        numbers=range(32),
    )


def docker_16_gb() -> Recorded:
    """`docker run --memory 16g --cpus 6 --gpus all` on a 128 GB machine, cgroup version 2 with a
    namespace of its own: the container's group looks like the root."""
    mounts = (
        "1021 1010 0:28 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw\n"
        "1034 1000 259:2 /var/lib/docker/containers/0f3a/hosts /etc/hosts rw - ext4 /dev/root rw\n"
    )
    return Recorded(
        files={
            **processor_files("AMD Ryzen 9 9950X 16-Core Processor", ZEN5, cores(16)),
            **meminfo(131_072_000, 120_000_000, 8_388_608),
            "/.dockerenv": "",
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": mounts,
            "/sys/fs/cgroup/memory.max": f"{16 * GIB}\n",
            "/sys/fs/cgroup/memory.current": f"{5 * GIB}\n",
            "/sys/fs/cgroup/memory.stat": (
                f"anon {GIB}\nfile {4 * GIB}\ninactive_file {3 * GIB}\nactive_file {GIB}\n"
            ),
            "/sys/fs/cgroup/memory.swap.max": "0\n",
            "/sys/fs/cgroup/cpu.max": "600000 100000\n",
        },
        modules={"pynvml": FakeNvml(RTX_5070)},
        numbers=range(32),
    )


def mig_h100(environment: dict[str, str] | None = None) -> Recorded:
    """Two H100s of one host: the first is cut into a 3g.40gb and a 1g.10gb instance."""
    h100 = FakeCard(
        name="NVIDIA H100 80GB HBM3",
        uuid="GPU-h100-0",
        bus="00000000:19:00.0",
        total=81559 * MIB,
        free=81000 * MIB,
        capability=(9, 0),
        cores=16896,
        clock=1980,
    )
    instances = [
        FakeCard(
            name="NVIDIA H100 80GB HBM3 MIG 3g.40gb",
            uuid="MIG-3c7d-big",
            total=40448 * MIB,
            free=40300 * MIB,
            answers={"GetGpuInstanceId": 2},
        ),
        None,
        FakeCard(
            name="NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            uuid="MIG-3c9e-small",
            total=9984 * MIB,
            free=9900 * MIB,
            answers={"GetGpuInstanceId": 9},
        ),
    ]
    cut = FakeCard(**{**h100.__dict__, "parts": instances})
    other = FakeCard(**{**h100.__dict__, "uuid": "GPU-h100-1", "bus": "00000000:3B:00.0"})
    return Recorded(
        files={
            **processor_files("Intel(R) Xeon(R) Platinum 8480C", ZEN5, cores(56, sockets=2)),
            **meminfo(2_113_428_000, 2_000_000_000),
            "/sys/devices/system/node/has_cpu": "0-1\n",
        },
        modules={"pynvml": FakeNvml(cut, other)},
        environment=environment or {},
        numbers=range(224),
    )


def gb10() -> Recorded:
    """DGX Spark: one memory of 128 GB for processor and GPU, on an Arm processor of two kinds of
    cores. NVML has no memory to report."""
    fast, slow = 1024, 718
    layout = [Core(0, i, (i,)) for i in range(20)]
    files: dict[str, str] = {}
    for core in layout:
        number = core.processors[0]
        files |= folder(
            f"{CPU}/cpu{number}", cpu_capacity=fast if number % 10 >= 5 else slow
        ) | folder(f"{CPU}/cpu{number}/topology", core_cpus_list=number, physical_package_id=0)
    return Recorded(
        files={
            **files,
            "/proc/cpuinfo": (
                "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd sve2 i8mm bf16\n"
                "CPU implementer\t: 0x41\nCPU part\t: 0xd87\n\n"
            ),
            **meminfo(127_600_748, 118_566_368, 16_777_212),
            **pci_device("000f:01:00.0", 0x10DE, 0x2E12, 0x030200),
        },
        commands={
            "lscpu": (
                "Architecture:  aarch64\nModel name:    Cortex-X925\nThread(s) per core: 1\n"
                "Model name:    Cortex-A725\n"
            )
        },
        modules={
            "pynvml": FakeNvml(
                FakeCard(
                    name="NVIDIA GB10",
                    uuid="GPU-2dee1e25-b3b5-007e-2b55-79f2d0f2ebe5",
                    bus="0000000F:01:00.0",
                    capability=(12, 1),
                    link=(1, 1),
                    fails={"GetMemoryInfo": error(NOT_SUPPORTED)},
                ),
                driver="580.126.09",
            )
        },
        architecture="aarch64",
        release="6.14.0-1013-nvidia",
        numbers=range(20),
    )
