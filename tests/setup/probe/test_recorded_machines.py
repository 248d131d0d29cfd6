"""Whole machines from their recordings: what the probe says of each."""

from __future__ import annotations

import json

import pytest

from engine.hardware import Gpu, Hardware
from setup.probe import probe
from tests.setup.probe import nvidia_machines, other_machines
from tests.setup.probe.fake_nvml import GIB, MIB
from tests.setup.probe.recorded import Recorded

EVERY = (
    nvidia_machines.desktop,
    nvidia_machines.laptop,
    nvidia_machines.wsl2,
    nvidia_machines.docker_16_gb,
    nvidia_machines.mig_h100,
    nvidia_machines.gb10,
    other_machines.cgroup_v1,
    other_machines.two_sockets,
    other_machines.apu_and_card,
    other_machines.four_r9700,
    other_machines.strix_halo,
)


@pytest.mark.parametrize("machine", [make() for make in EVERY], ids=lambda m: str(m.release))
def test_every_recording_survives_json(machine: Recorded) -> None:
    found = probe(machine)
    assert Hardware.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert probe(machine) == found


def test_a_desktop_with_one_card() -> None:
    found = probe(nvidia_machines.desktop())
    assert found.gpus == (
        Gpu(
            index=0,
            uuid="GPU-11111111-aaaa-bbbb-cccc-000000000001",
            pci_bus_id="0000:01:00.0",
            vendor="nvidia",
            name="NVIDIA GeForce RTX 5070",
            arch="12.0",
            vram_bytes=12227 * MIB,
            vram_free_bytes=11800 * MIB,
            driver="580.95.05",
            integrated=False,
            display=True,
            compute_mode="Default",
            link_generation=5,
            link_width=16,
            cores=6144,
            clock_mhz=3090,
        ),
    )
    assert found.ram_bytes == 65_345_612 * 1024
    assert found.ram_available_bytes == 51_234_560 * 1024
    assert found.swap_bytes == 8_388_604 * 1024
    assert (found.memory_limit_bytes, found.cpu_limit) == (0, 0.0)
    assert (found.cpu.cores, found.cpu.sockets) == (8, 1)
    assert (found.cpu.avx2, found.cpu.avx512, found.cpu.avx, found.cpu.sse42) == (True,) * 4
    assert found.cpu.name == "AMD Ryzen 7 9700X 8-Core Processor"
    assert (found.cpu.performance_cores, found.cpu.efficiency_cores) == (0, 0)
    assert (found.os, found.wsl, found.container, found.desktop) == ("linux", False, False, True)
    assert (found.disk_free_bytes, found.disk_rotational) == (500_000_000_000, False)
    assert found.notes == ()


def test_a_laptop_with_hybrid_graphics_and_two_kinds_of_cores() -> None:
    found = probe(nvidia_machines.laptop())
    # Intel's GPU is not one that models run on, and is not listed.
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA GeForce RTX 4090 Laptop GPU"]
    assert not found.gpus[0].display
    assert (found.gpus[0].link_generation, found.gpus[0].link_width) == (4, 8)
    # 8 fast cores with two threads each, 16 slow ones with one: 24 cores, 32 processors.
    assert (found.cpu.performance_cores, found.cpu.efficiency_cores) == (8, 16)
    assert found.cpu.cores == 24
    assert found.cpu.avx2
    assert not found.cpu.avx512
    assert found.notes == ()


def test_windows_linux() -> None:
    found = probe(nvidia_machines.wsl2())
    assert found.wsl
    # What the virtual disk says about turning means nothing.
    assert not found.disk_rotational
    assert found.gpus[0].vram_bytes == 24564 * MIB
    assert found.gpus[0].driver == "581.15"
    assert not found.container
    assert found.notes == ()


def test_a_container_with_16_gb() -> None:
    found = probe(nvidia_machines.docker_16_gb())
    assert found.ram_bytes == found.memory_limit_bytes == 16 * GIB
    # 16 GiB less the 5 used, of which 4 are pages of files that can be dropped: 16 - 1.
    assert found.ram_available_bytes == 15 * GIB
    assert found.swap_bytes == 0
    assert found.cpu_limit == 6.0
    assert found.cpu.cores == 16
    assert found.container
    assert len(found.gpus) == 1


def test_a_limit_of_version_1_on_a_group_above() -> None:
    found = probe(other_machines.cgroup_v1())
    assert found.ram_bytes == found.memory_limit_bytes == 32 * GIB
    # The job holds 12 GiB, 2 of them pages of files: 32 - 10.
    assert found.ram_available_bytes == 22 * GIB
    # Memory and swap together 33, memory 32: 1 GiB of swap.
    assert found.swap_bytes == GIB
    assert found.cpu_limit == 4.5


def test_two_sockets() -> None:
    found = probe(other_machines.two_sockets())
    # Pinned to one socket: 16 cores of 32 may be used; the machine still has two sockets.
    assert (found.cpu.cores, found.cpu.sockets) == (16, 2)
    # Node 2 has memory and no processor, as the memory of a card may be.
    assert found.numa_nodes == 2
    assert found.disk_rotational
    assert found.gpus == ()


def test_an_apu_beside_a_card() -> None:
    card, apu = probe(other_machines.apu_and_card()).gpus
    assert (card.index, card.arch, card.integrated) == (0, "gfx1201", False)
    assert (card.uuid, card.pci_bus_id) == ("GPU-0000000000000abc", "0000:03:00.0")
    assert card.name == "AMD Radeon RX 9070/9070 XT"
    assert card.vram_bytes == 16304 * MIB
    assert card.vram_free_bytes == (16304 - 512) * MIB
    assert card.display
    # The slowest step to the processor: 16 GT/s is generation 4, 8 lanes.
    assert (card.link_generation, card.link_width) == (4, 8)
    # 128 SIMD units, two a compute unit, 64 stream processors each: 4096.
    assert (card.cores, card.clock_mhz) == (4096, 2920)
    assert card.shared_bytes == 0
    # 100306: major 10, minor 3, stepping 6.
    assert (apu.index, apu.arch, apu.integrated) == (1, "gfx1036", True)
    assert apu.uuid == "PCI-0000:0e:00.0"
    assert (apu.vram_bytes, apu.shared_bytes) == (512 * MIB, 30 * GIB)
    assert not apu.display


def test_four_cards_of_amd() -> None:
    found = probe(other_machines.four_r9700())
    assert [gpu.index for gpu in found.gpus] == [0, 1, 2, 3]
    assert {gpu.name for gpu in found.gpus} == {"AMD Radeon AI PRO R9700"}
    assert {gpu.vram_bytes for gpu in found.gpus} == {32624 * MIB}
    assert [gpu.pci_bus_id[5:7] for gpu in found.gpus] == ["03", "23", "43", "c3"]
    assert found.notes == ()


def test_an_apu_with_much_memory_of_its_own() -> None:
    found = probe(other_machines.strix_halo())
    gpu = found.gpus[0]
    assert (gpu.arch, gpu.integrated) == ("gfx1151", True)
    # Its own carve-out, and what the driver lends of the rest.
    assert (gpu.vram_bytes, gpu.shared_bytes) == (96 * GIB, 15 * GIB)
    assert found.notes == ()


def test_a_board_with_one_memory() -> None:
    found = probe(nvidia_machines.gb10())
    gpu = found.gpus[0]
    assert (gpu.name, gpu.arch, gpu.pci_bus_id) == ("NVIDIA GB10", "12.1", "000f:01:00.0")
    assert (gpu.integrated, gpu.vram_bytes, gpu.vram_free_bytes) == (True, 0, 0)
    assert gpu.shared_bytes == found.ram_bytes == 127_600_748 * 1024
    # 127600748 / 2^20 = 121.69 GiB
    assert found.notes == (
        "NVIDIA GB10 reports no memory of its own: it is taken for one that shares the machine's "
        "121.7 GiB",
    )
    # 718 is under 90% of 1024: ten cores are slow.
    assert (found.cpu.performance_cores, found.cpu.efficiency_cores) == (10, 10)
    assert found.cpu.name == "Cortex-X925 + Cortex-A725"
    assert not found.cpu.avx2


def test_a_card_in_parts_beside_a_whole_one() -> None:
    found = probe(nvidia_machines.mig_h100())
    # A process gets whole cards or one part: the whole one is taken, with its number.
    assert [(gpu.index, gpu.uuid) for gpu in found.gpus] == [(1, "GPU-h100-1")]
    assert "MIG-3c7d-big (39.5 GiB), MIG-3c9e-small (9.8 GiB)" in found.notes[0]
    assert "the whole cards are taken" in found.notes[0]
    assert (found.cpu.cores, found.cpu.sockets) == (112, 2)


def test_a_part_that_the_environment_names() -> None:
    found = probe(nvidia_machines.mig_h100({"CUDA_VISIBLE_DEVICES": "MIG-3c9e-small"}))
    part = found.gpus[0]
    assert (part.index, part.uuid) == (0, "MIG-3c9e-small")
    assert part.name == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert (part.vram_bytes, part.vram_free_bytes) == (9984 * MIB, 9900 * MIB)
    assert part.pci_bus_id == "0000:19:00.0"
    assert not part.integrated
    assert found.notes == (
        "CUDA_VISIBLE_DEVICES=MIG-3c9e-small hides GPU 1: NVIDIA H100 80GB HBM3 (GPU-h100-1)",
    )
