"""What NVML fails at, and what the probe makes of it: notes, and the cards that do answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pynvml
import pytest

from engine.hardware import Hardware
from setup.probe import probe
from tests.setup.probe.fake_nvml import (
    EVERY_FUNCTION,
    GIB,
    GPU_IS_LOST,
    MIB,
    NO_PERMISSION,
    NOT_SUPPORTED,
    FakeCard,
    FakeNvml,
    error,
)
from tests.setup.probe.recorded import Recorded
from tests.setup.probe.texts import meminfo, pci_device

FIRST = FakeCard(name="NVIDIA RTX A", uuid="GPU-a", bus="00000000:01:00.0")
SECOND = FakeCard(name="NVIDIA RTX B", uuid="GPU-b", bus="00000000:02:00.0")
THIRD = FakeCard(name="NVIDIA RTX C", uuid="GPU-c", bus="00000000:C1:00.0")
ON_THE_BUS = pci_device("0000:01:00.0", 0x10DE, 0x2F04)
SMI_LINE = (
    "GPU-s, 00000000:01:00.0, NVIDIA RTX S, 8.9, 16380, 16000, 570.1, Disabled, Default, 4, 16, "
    "2600, [N/A]\n"
)


def probed(nvml: Any, **more: Any) -> Hardware:
    files = meminfo(64 * 1024 * 1024, 1) | more.pop("files", {})
    return probe(Recorded(files=files, modules={"pynvml": nvml}, **more))


def test_the_stand_in_has_the_names_of_the_real_module() -> None:
    for name in EVERY_FUNCTION:
        assert callable(getattr(pynvml, name)), name


def test_cards_are_numbered_in_bus_order_whatever_nvml_s_order_is() -> None:
    nvml = FakeNvml(THIRD, FIRST, SECOND)
    found = probed(nvml)
    assert [(gpu.index, gpu.uuid) for gpu in found.gpus] == [
        (0, "GPU-a"),
        (1, "GPU-b"),
        (2, "GPU-c"),
    ]
    assert nvml.open == 0


@pytest.mark.parametrize("code", [GPU_IS_LOST, NO_PERMISSION, pynvml.NVML_ERROR_UNKNOWN])
def test_a_card_that_vanished_is_left_out_and_the_others_keep_their_numbers(code: int) -> None:
    nvml = FakeNvml(FIRST, replace(SECOND, lost=code), THIRD)
    found = probed(nvml)
    assert [(gpu.index, gpu.uuid) for gpu in found.gpus] == [(0, "GPU-a"), (2, "GPU-c")]
    assert found.notes == (
        f"NVIDIA card 1 does not answer and is left out: {pynvml.NVMLError(code)}",
    )
    assert nvml.open == 0


def test_a_card_that_vanishes_while_it_is_asked_is_left_out() -> None:
    lost = replace(SECOND, fails={"GetMemoryInfo": error(GPU_IS_LOST)})
    found = probed(FakeNvml(FIRST, lost))
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-a"]
    assert found.notes == (
        "NVIDIA RTX B (GPU-b) does not tell its memory and is left out: GPU is lost",
    )


@pytest.mark.parametrize(
    "card",
    [
        replace(FIRST, fails={"GetMemoryInfo": error(NOT_SUPPORTED)}),
        replace(FIRST, total=0, free=0),
        # Some drivers report the machine's memory as the board's.
        replace(FIRST, name="NVIDIA Thor", total=64 * GIB, free=60 * GIB),
    ],
)
def test_a_gpu_without_memory_of_its_own_shares_the_machine_s(card: FakeCard) -> None:
    found = probed(FakeNvml(card))
    gpu = found.gpus[0]
    assert (gpu.integrated, gpu.vram_bytes, gpu.vram_free_bytes) == (True, 0, 0)
    assert gpu.shared_bytes == found.ram_bytes == 64 * GIB
    assert "64.0 GiB" in found.notes[0]


OPTIONAL = sorted(
    {name.removeprefix("nvmlDevice") for name in EVERY_FUNCTION if "nvmlDeviceGet" in name}
    - {"GetCount", "GetHandleByIndex", "GetMemoryInfo"}
)
ERRORS = [error(NOT_SUPPORTED), error(NO_PERMISSION), error(999), OSError("no"), ValueError()]


@pytest.mark.parametrize("function", OPTIONAL)
def test_a_card_that_does_not_tell_all_is_still_found(function: str) -> None:
    for failure in ERRORS:
        found = probed(FakeNvml(FIRST, replace(SECOND, fails={function: failure})))
        assert [gpu.vram_bytes for gpu in found.gpus] == [12227 * MIB] * 2
        assert found.gpus[0].uuid == "GPU-a"
        assert found.gpus[1].uuid in ("GPU-b", "PCI-0000:02:00.0")


@pytest.mark.parametrize("function", ["nvmlSystemGetDriverVersion", "nvmlShutdown"])
def test_a_library_that_half_works_is_used(function: str) -> None:
    found = probed(FakeNvml(FIRST, fails={function: error(pynvml.NVML_ERROR_UNKNOWN)}))
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-a"]
    assert len(found.notes) == 1
    assert "Unknown Error" in found.notes[0]


def test_a_card_without_any_identity_is_left_out() -> None:
    nameless = replace(FIRST, uuid="", bus="", name="")
    found = probed(FakeNvml(nameless, SECOND))
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-b"]
    assert "has no identity" in found.notes[0]


# What a machine without NVIDIA's driver says, by import or by start.
ABSENT = [
    ModuleNotFoundError("No module named 'pynvml'"),
    FakeNvml(fails={"nvmlInit": error(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)}),
    FakeNvml(fails={"nvmlInit": error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)}),
]
BROKEN = [
    (OSError("libnvidia-ml.so.1: file too short"), "file too short", "Install or repair"),
    (RuntimeError(), "RuntimeError", "Install or repair"),
    (
        FakeNvml(fails={"nvmlInit": error(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)}),
        "version mismatch",
        "Restart the machine",
    ),
    (
        FakeNvml(fails={"nvmlInit": error(NO_PERMISSION)}),
        "Insufficient Permissions",
        "/dev/nvidia*",
    ),
    (
        FakeNvml(fails={"nvmlDeviceGetCount": error(pynvml.NVML_ERROR_UNKNOWN)}),
        "Unknown Error",
        "Install or repair",
    ),
]


@pytest.mark.parametrize("nvml", ABSENT)
def test_no_driver_and_no_card_is_nothing_to_tell(nvml: Any) -> None:
    found = probed(nvml)
    assert found.gpus == ()
    assert found.notes == ()


@pytest.mark.parametrize("nvml", ABSENT)
def test_no_driver_beside_a_card_is_told(nvml: Any) -> None:
    found = probed(nvml, files=ON_THE_BUS)
    assert found.gpus == ()
    assert len(found.notes) == 1
    assert "NVIDIA cards: 0000:01:00.0" in found.notes[0]
    assert "Install or repair the NVIDIA driver" in found.notes[0]


@pytest.mark.parametrize(("nvml", "why", "advice"), BROKEN)
def test_a_broken_driver_is_told(nvml: Any, why: str, advice: str) -> None:
    found = probed(nvml)
    assert found.gpus == ()
    assert why in found.notes[0]
    assert advice in found.notes[0]


@pytest.mark.parametrize("nvml", [*ABSENT, *(row[0] for row in BROKEN)])
def test_nvidia_smi_answers_where_nvml_does_not(nvml: Any) -> None:
    found = probed(nvml, files=ON_THE_BUS, commands={"nvidia-smi": SMI_LINE})
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-s"]
    assert "read with nvidia-smi" in found.notes[0]


def test_a_card_on_the_bus_that_the_driver_does_not_have_is_told() -> None:
    files = ON_THE_BUS | pci_device("0000:02:00.0", 0x10DE, 0x2F04)
    found = probed(FakeNvml(FIRST), files=files)
    assert found.notes == ("NVIDIA cards that the driver does not offer: 0000:02:00.0",)
    # A container is given some of the cards that it sees on the bus.
    assert probed(FakeNvml(FIRST), files=files | {"/.dockerenv": ""}).notes == ()


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (pynvml.NVML_COMPUTEMODE_DEFAULT, "Default"),
        (pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD, "Exclusive_Thread"),
        (pynvml.NVML_COMPUTEMODE_PROHIBITED, "Prohibited"),
        (pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, "Exclusive_Process"),
        (99, ""),
        ("Default", ""),
    ],
)
def test_compute_modes_have_nvidia_smi_s_words(answer: object, word: str) -> None:
    card = replace(FIRST, answers={"GetComputeMode": answer})
    assert probed(FakeNvml(card)).gpus[0].compute_mode == word


@pytest.mark.parametrize(
    ("answer", "cores"), [(6144, 6144), (0, 0), (-1, 0), (True, 0), (2**63, 0), ("6144", 0)]
)
def test_numbers_are_from_0_and_below_2_to_the_63(answer: object, cores: int) -> None:
    card = replace(FIRST, answers={"GetNumGpuCores": answer})
    assert probed(FakeNvml(card)).gpus[0].cores == cores


def test_two_cards_with_one_identity_are_one() -> None:
    found = probed(FakeNvml(FIRST, replace(SECOND, uuid="GPU-a")))
    assert [(gpu.index, gpu.name) for gpu in found.gpus] == [(0, "NVIDIA RTX A")]
    assert found.notes == ("NVIDIA RTX B (GPU-a) is listed twice: the second is left out",)


def test_answers_of_old_libraries_are_bytes() -> None:
    answers = {"GetName": b"Tesla \xff T4", "GetUUID": b"GPU-t4"}
    gpu = probed(FakeNvml(replace(FIRST, answers=answers))).gpus[0]
    assert (gpu.name, gpu.uuid) == ("Tesla \ufffd T4", "GPU-t4")


def test_a_card_in_mig_mode_may_keep_its_memory_to_itself() -> None:
    part = FakeCard(name="A100 MIG 1g.5gb", uuid="MIG-1", total=4864 * MIB, free=4800 * MIB)
    part = replace(part, answers={"GetGpuInstanceId": 7})
    failing = replace(part, fails={"GetMemoryInfo": error(NO_PERMISSION)})
    card = replace(FIRST, parts=[failing, part], fails={"GetMemoryInfo": error(NO_PERMISSION)})
    found = probed(FakeNvml(card))
    assert [(gpu.uuid, gpu.vram_bytes) for gpu in found.gpus] == [("MIG-1", 4864 * MIB)]
    assert "a MIG instance of GPU 0 is left out: Insufficient Permissions" in found.notes
    empty = probed(FakeNvml(replace(card, parts=[])))
    assert empty.gpus == ()
    assert "has no instance" in empty.notes[0]
