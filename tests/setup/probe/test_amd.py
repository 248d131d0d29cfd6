"""AMD GPUs from the kernel's compute driver, with and without AMD's library."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from engine.hardware import Hardware
from setup.probe import probe
from setup.probe.kfd import gfx_name
from tests.setup.probe import other_machines
from tests.setup.probe.recorded import Recorded
from tests.setup.probe.texts import amd_card, kfd_node, meminfo, pci_device

GIB = 1 << 30
MIB = 1 << 20
CARD_AT = "0000:03:00.0"


@dataclass
class FakeAmdSmi:
    """The `amdsmi` module: by bus id, what it answers; an error is raised instead."""

    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    fails: dict[str, Exception] = field(default_factory=dict)
    open: int = 0

    AmdSmiMemoryType = SimpleNamespace(VRAM="vram", GTT="gtt")

    def _answer(self, handle: str, name: str) -> Any:
        if name in self.fails:
            raise self.fails[name]
        return self.cards[handle][name]

    def amdsmi_init(self) -> None:
        self.open += 1
        if "init" in self.fails:
            raise self.fails["init"]

    def amdsmi_shut_down(self) -> None:
        self.open -= 1

    def amdsmi_get_processor_handles(self) -> list[str]:
        if "handles" in self.fails:
            raise self.fails["handles"]
        return list(self.cards)

    def amdsmi_get_gpu_device_bdf(self, handle: str) -> str:
        return self._answer(handle, "bdf")  # type: ignore[no-any-return]

    def amdsmi_get_gpu_asic_info(self, handle: str) -> dict[str, str]:
        return {"market_name": self._answer(handle, "name"), "vendor_name": "AMD"}

    def amdsmi_get_gpu_memory_total(self, handle: str, kind: str) -> int:
        assert kind == "vram"
        return self._answer(handle, "total")  # type: ignore[no-any-return]

    def amdsmi_get_gpu_memory_usage(self, handle: str, kind: str) -> int:
        assert kind == "vram"
        return self._answer(handle, "used")  # type: ignore[no-any-return]

    def amdsmi_get_gpu_vram_info(self, handle: str) -> dict[str, int]:
        return {"vram_size": self._answer(handle, "total") // MIB}

    def amdsmi_get_gpu_driver_info(self, handle: str) -> dict[str, str]:
        return {"driver_version": self._answer(handle, "driver")}


def r9700(**changes: Any) -> FakeAmdSmi:
    facts = {
        "bdf": CARD_AT,
        "name": "AMD Radeon AI PRO R9700",
        "total": 32624 * MIB,
        "used": 600 * MIB,
        "driver": "6.14.14",
    }
    return FakeAmdSmi(cards={"handle": facts | changes})


def probed(library: Any, files: dict[str, str] | None = None, **more: Any) -> Hardware:
    card = amd_card(1, CARD_AT, 120001, 0x7551, 128, 32000 * MIB, 60 * GIB)
    files = meminfo(64 * 1024 * 1024, 1) | card | kfd_node(0, cpu_cores_count=8) | (files or {})
    return probe(Recorded(files=files, modules={"amdsmi": library}, **more))


@pytest.mark.parametrize(
    ("version", "name"),
    [(120001, "gfx1201"), (110000, "gfx1100"), (100306, "gfx1036"), (90010, "gfx90a"),
     (110501, "gfx1151"), (90402, "gfx942"), (90012, "gfx90c")],
)  # fmt: skip
def test_names_of_architectures(version: int, name: str) -> None:
    assert gfx_name(version) == name


def test_names_and_memory_come_from_the_library() -> None:
    library = r9700()
    gpu = probed(library).gpus[0]
    assert (gpu.name, gpu.driver) == ("AMD Radeon AI PRO R9700", "6.14.14")
    assert (gpu.vram_bytes, gpu.vram_free_bytes) == (32624 * MIB, (32624 - 600) * MIB)
    assert library.open == 0


def test_what_the_library_leaves_out_comes_from_the_kernel() -> None:
    files = {
        "/sys/class/drm/renderD128/device/product_name": "Radeon of the kernel\n",
        "/sys/module/amdgpu/version": "6.10.5\n",
    }
    library = r9700(name="N/A", driver="N/A", total=0, used=0)
    gpu = probed(library, files).gpus[0]
    assert (gpu.name, gpu.driver) == ("Radeon of the kernel", "6.10.5")
    # 32000 MiB of which 512 are in use.
    assert (gpu.vram_bytes, gpu.vram_free_bytes) == (32000 * MIB, (32000 - 512) * MIB)


@pytest.mark.parametrize(
    "library",
    [
        # What amdsmi 7.0 raises where its library is not installed.
        KeyError("libamd_smi.so"),
        OSError("cannot open shared object file"),
        FakeAmdSmi(fails={"init": RuntimeError("AMDSMI_STATUS_DRIVER_NOT_LOADED")}),
        FakeAmdSmi(fails={"handles": RuntimeError("AMDSMI_STATUS_NO_PERM")}),
        SimpleNamespace(),
    ],
)
def test_a_broken_library_is_told_and_not_needed(library: Any) -> None:
    found = probed(library)
    assert found.gpus[0].name == "AMD Radeon AI PRO R9700"
    assert found.gpus[0].vram_bytes == 32000 * MIB
    assert len(found.notes) == 1
    assert found.notes[0].startswith("amdsmi ")


def test_no_library_is_nothing_to_tell() -> None:
    assert probed(ModuleNotFoundError("amdsmi")).notes == ()


@pytest.mark.parametrize("name", ["bdf", "name", "total", "used", "driver"])
def test_any_call_of_the_library_may_fail(name: str) -> None:
    library = r9700()
    library.fails[name] = RuntimeError("AMDSMI_STATUS_NOT_SUPPORTED")
    found = probed(library)
    assert found.gpus[0].vram_bytes in (32000 * MIB, 32624 * MIB)
    assert library.open == 0


def test_memory_that_only_the_compute_driver_knows() -> None:
    banks = "/sys/class/kfd/kfd/topology/nodes/1/mem_banks"
    files = {
        "/sys/class/drm/renderD128/device/mem_info_vram_total": "",
        f"{banks}/0/properties": f"heap_type 1\nsize_in_bytes {16 * GIB}\nflags 0\n",
        f"{banks}/1/properties": f"heap_type 4\nsize_in_bytes {GIB}\n",
    }
    assert probed(ModuleNotFoundError(), files).gpus[0].vram_bytes == 16 * GIB


def test_a_card_that_does_not_tell_its_memory_is_left_out() -> None:
    files = {"/sys/class/drm/renderD128/device/mem_info_vram_total": "garbage"}
    found = probed(ModuleNotFoundError(), files)
    assert found.gpus == ()
    assert "does not tell its memory and is left out" in found.notes[0]


def test_numbers_are_the_order_of_the_nodes_and_not_of_the_bus() -> None:
    files = amd_card(2, "0000:01:00.0", 110000, 0x744C, 129, 24 * GIB, GIB, unique_id=2)
    found = probed(ModuleNotFoundError(), files)
    # Node 10 comes after node 2: numbers, not texts.
    more = files | amd_card(10, "0000:02:00.0", 110000, 0x744C, 130, 24 * GIB, GIB, unique_id=3)
    assert [(g.index, g.pci_bus_id) for g in found.gpus] == [
        (0, "0000:03:00.0"),
        (1, "0000:01:00.0"),
    ]
    assert probed(ModuleNotFoundError(), more).gpus[2].pci_bus_id == "0000:02:00.0"


@pytest.mark.parametrize("place", ["0000:ff:1f.7", "0001:03:00.0", "0000:00:01.2"])
def test_places_on_the_bus(place: str) -> None:
    files = amd_card(1, place, 110000, 0x744C, 128, 24 * GIB, GIB)
    assert probed(ModuleNotFoundError(), files).gpus[0].pci_bus_id == place


def test_an_unknown_device_is_named_by_its_numbers() -> None:
    files = amd_card(1, CARD_AT, 120001, 0x75FF, 128, 16 * GIB, GIB)
    assert probed(ModuleNotFoundError(), files).gpus[0].name == "AMD GPU gfx1201 (device 75ff)"


def test_a_card_without_the_compute_driver_is_told() -> None:
    found = probe(Recorded(files=pci_device("0000:03:00.0", 0x1002, 0x7551)))
    assert found.gpus == ()
    assert found.notes == (
        "AMD Radeon AI PRO R9700 at 0000:03:00.0 is not in the kernel's list for HIP: it needs "
        "the amdgpu driver, and in a container the devices /dev/kfd and /dev/dri",
    )


def test_a_user_without_the_right_to_compute_is_told() -> None:
    found = probed(ModuleNotFoundError(), forbidden=("/dev/kfd",))
    assert len(found.gpus) == 1
    assert "may not open /dev/kfd" in found.notes[0]
    assert "`render`" in found.notes[0]
    # Nobody computes on the GPU inside a desktop processor: nothing to tell.
    apu = amd_card(1, CARD_AT, 100306, 0x164E, 128, 512 * MIB, GIB)
    assert probed(ModuleNotFoundError(), apu, forbidden=("/dev/kfd",)).notes == ()


@pytest.mark.parametrize(
    ("gtt", "limit", "shared"),
    [
        (30 * GIB, "max", 30 * GIB),
        (0, "max", 32 * GIB),  # half of 64: the driver's default
        (30 * GIB, str(8 * GIB), 8 * GIB),  # a control group allows less
    ],
)
def test_what_an_integrated_gpu_may_share(gtt: int, limit: str, shared: int) -> None:
    apu = amd_card(1, CARD_AT, 110501, 0x1586, 128, 512 * MIB, gtt)
    gpu = probed(ModuleNotFoundError(), apu | {"/sys/fs/cgroup/memory.max": limit}).gpus[0]
    assert (gpu.integrated, gpu.vram_bytes, gpu.shared_bytes) == (True, 512 * MIB, shared)


def test_a_processor_and_gpu_in_one_node_are_integrated() -> None:
    apu = amd_card(1, CARD_AT, 90002, 0x15DD, 128, 2 * GIB, GIB, cpu_cores_count=8)
    assert probed(ModuleNotFoundError(), apu).gpus[0].integrated


def test_the_library_finds_each_of_several_cards_by_its_place() -> None:
    machine = other_machines.four_r9700()
    cards = {
        f"h{i}": {"bdf": f"0000:{bus}:00.0", "name": f"R {bus}", "total": i * GIB, "used": 0,
                  "driver": "6"}
        for i, bus in enumerate(("c3", "43", "23", "03"), start=1)
    }  # fmt: skip
    machine.modules = {"amdsmi": FakeAmdSmi(cards=cards)}
    found = probe(machine).gpus
    assert [(gpu.index, gpu.name) for gpu in found] == [
        (0, "R 03"), (1, "R 23"), (2, "R 43"), (3, "R c3")
    ]  # fmt: skip
    assert [gpu.vram_bytes // GIB for gpu in found] == [4, 3, 2, 1]
