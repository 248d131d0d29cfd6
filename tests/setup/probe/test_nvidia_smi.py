"""Cards read from nvidia-smi's lines."""

from __future__ import annotations

import pytest

from engine.hardware import Hardware
from setup.probe import probe
from tests.setup.probe.recorded import Recorded
from tests.setup.probe.texts import meminfo

GIB = 1 << 30
MIB = 1 << 20


def line(**changes: str) -> str:
    """A card's line with some cells changed."""
    cells = {
        "uuid": "GPU-a",
        "bus": "00000000:01:00.0",
        "name": "NVIDIA GeForce RTX 5070",
        "cap": "12.0",
        "total": "12227",
        "free": "11800",
        "driver": "580.95.05",
        "display": "Enabled",
        "mode": "Default",
        "gen": "5",
        "width": "16",
        "clock": "3090",
        "mig": "[N/A]",
    }
    return ", ".join((cells | changes).values()) + "\n"


def probed(text: str) -> Hardware:
    files = meminfo(32 * 1024 * 1024, 1)
    return probe(Recorded(files=files, commands={"nvidia-smi": text}))


def test_a_card() -> None:
    gpu = probed(line()).gpus[0]
    assert (gpu.index, gpu.uuid, gpu.pci_bus_id) == (0, "GPU-a", "0000:01:00.0")
    assert (gpu.vram_bytes, gpu.vram_free_bytes) == (12227 * MIB, 11800 * MIB)
    assert (gpu.arch, gpu.driver, gpu.compute_mode) == ("12.0", "580.95.05", "Default")
    assert (gpu.display, gpu.link_generation, gpu.link_width) == (True, 5, 16)
    assert (gpu.integrated, gpu.clock_mhz) == (False, 3090)


def test_lines_are_sorted_by_bus_and_a_name_may_have_a_comma() -> None:
    text = line(uuid="GPU-late", bus="00000000:C1:00.0", name='"A card, with a comma"') + "\n"
    found = probed(text + line())
    assert [(gpu.index, gpu.uuid) for gpu in found.gpus] == [(0, "GPU-a"), (1, "GPU-late")]
    assert found.gpus[1].name == "A card, with a comma"


def test_memory_that_a_board_does_not_have() -> None:
    found = probed(line(name="NVIDIA GB10", total="[N/A]", free="[N/A]"))
    gpu = found.gpus[0]
    assert (gpu.integrated, gpu.vram_bytes, gpu.shared_bytes) == (True, 0, 32 * GIB)
    assert any("shares the machine's 32.0 GiB" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (line(total="[GPU is lost]"), "its memory is [GPU is lost]"),
        (line(total="[Unknown Error]"), "its memory is [Unknown Error]"),
        (line(bus="[Not Found]"), "is left out"),
        (line(mig="Enabled"), "is in MIG mode and left out"),
        ("NVIDIA-SMI has failed because it could not communicate\n", "a line cannot be read"),
        ("\0\x01\x02, \x7f\n", "a line cannot be read"),
    ],
)
def test_a_line_that_is_no_card_is_told(text: str, note: str) -> None:
    found = probed(text + line(uuid="GPU-b", bus="00000000:02:00.0"))
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-b"]
    assert any(note in text for text in found.notes)


def test_cells_that_are_not_known_are_empty() -> None:
    cells = dict.fromkeys(
        ("uuid", "cap", "free", "driver", "display", "mode", "gen", "width", "clock"), "[N/A]"
    )
    gpu = probed(line(**cells)).gpus[0]
    assert gpu.uuid == "PCI-0000:01:00.0"
    assert (gpu.arch, gpu.driver, gpu.compute_mode) == ("", "", "")
    assert (gpu.vram_free_bytes, gpu.link_generation, gpu.link_width, gpu.clock_mhz) == (0,) * 4
    assert not gpu.display
