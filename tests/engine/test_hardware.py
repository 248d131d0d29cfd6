"""Recorded machines survive the way through JSON, and bad recordings are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.errors import ConfigError
from engine.hardware import Hardware, local_hardware
from tests.machines import CARD, machine


def test_a_recording_reads_back_as_it_was() -> None:
    recorded = machine(gpus=(CARD,))
    assert Hardware.from_json(json.loads(json.dumps(recorded.to_json()))) == recorded


def test_a_recording_of_the_fewest_facts_reads() -> None:
    gpu = {
        "index": 0,
        "uuid": "GPU-1",
        "pci_bus_id": "0000:01:00.0",
        "vendor": "nvidia",
        "name": "NVIDIA GeForce RTX 5070",
        "arch": "12.0",
        "vram_bytes": 12820938752,
        "vram_free_bytes": 12100000000,
        "driver": "580.95",
        "integrated": False,
    }
    read = Hardware.from_json(
        {
            "gpus": [gpu],
            "ram_bytes": 68400000000,
            "ram_available_bytes": 60000000000,
            "cpu": {"name": "...", "cores": 6, "avx2": True, "avx512": True},
            "disk_free_bytes": 500000000000,
            "os": "linux",
            "wsl": False,
        }
    )
    assert read.gpus == (CARD,)
    assert (read.cpu.cores, read.cpu.sockets, read.numa_nodes, read.notes) == (6, 1, 1, ())
    # 12820938752 / 2^30 = 11.94
    assert round(read.gpus[0].vram_gib, 2) == 11.94


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        (("ram_bytes",), "64 GB", "ram_bytes is '64 GB', not a whole number"),
        (("ram_bytes",), -1, "ram_bytes is -1"),
        (("wsl",), 1, "wsl is 1, not true or false"),
        (("cpu",), None, "cpu is not a JSON object"),
        (("cpu", "cores"), True, "cpu.cores is True"),
        (("gpus",), {}, "gpus is {}, not a list"),
        (("gpus", 0, "name"), None, "gpus[0].name is None, not a text"),
    ],
)
def test_bad_recordings_are_named(path: tuple[str | int, ...], value: object, part: str) -> None:
    data = json.loads(json.dumps(machine(gpus=(CARD,)).to_json()))
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ConfigError, match="recorded hardware") as caught:
        Hardware.from_json(data)
    assert part in caught.value.message


def test_planning_respects_what_a_container_may_use(tmp_path: Path) -> None:
    files = {
        "/proc/meminfo": "MemTotal: 65345612 kB\nMemAvailable: 51234560 kB\nSwapTotal: 9 kB\n",
        "/sys/fs/cgroup/memory.max": f"{16 << 30}\n",
        "/sys/fs/cgroup/memory.current": f"{2 << 30}\n",
        "/sys/fs/cgroup/cpu.max": "50000 100000\n",
    }
    here = local_hardware(tmp_path, lambda path: files.get(path, ""))
    assert (here.ram_bytes, here.memory_limit_bytes) == (16 << 30, 16 << 30)
    # 16 GiB less the 2 in use.
    assert (here.ram_available_bytes, here.swap_bytes) == (14 << 30, 9 << 10)
    assert here.cpu_limit == 0.5


def test_this_machine_can_plan(tmp_path: Path) -> None:
    here = local_hardware(tmp_path)
    assert here.cpu.cores >= 1
    assert 0 < here.ram_available_bytes <= here.ram_bytes
