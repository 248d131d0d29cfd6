"""Which cards CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES leave."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.hardware import Gpu
from setup.probe import probe
from setup.probe.notes import Notes
from setup.probe.visible import Card, cuda_visible, hip_visible
from tests.machines import CARD
from tests.setup.probe import nvidia_machines, other_machines


def card(index: int, name: str, uuid: str, speed: int = 0) -> Gpu:
    return replace(
        CARD,
        index=index,
        name=name,
        uuid=uuid,
        pci_bus_id=f"0000:0{index + 1}:00.0",
        cores=speed,
        clock_mhz=2000,
    )


# In bus order: the old card, then the two fast ones. CUDA numbers the fastest first: B, C, A.
MIXED = (
    Card(card(0, "RTX 3060", "GPU-aa11-1", 3584)),
    Card(card(1, "RTX 5090", "GPU-bb22-2", 21760)),
    Card(card(2, "RTX 4090", "GPU-bb33-3", 16384)),
)
ALIKE = tuple(replace(c, gpu=replace(c.gpu, name="RTX 3090", cores=10496)) for c in MIXED)
PCI = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
FASTEST = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}


def shown(cards: tuple[Card, ...], said: str, **environment: str) -> tuple[list[int], str]:
    notes = Notes()
    found = cuda_visible(cards, {"CUDA_VISIBLE_DEVICES": said, **environment}, notes)
    return [gpu.index for gpu in found], " | ".join(notes.all())


@pytest.mark.parametrize(
    ("said", "in_bus_order", "fastest_first"),
    [
        ("0", [0], [1]),  # the fastest is the card on bus 02
        ("1", [1], [2]),
        ("2", [2], [0]),
        ("0,1", [0, 1], [1, 2]),
        ("2,0", [0, 2], [0, 1]),  # the order of the list does not change numbers
        (" 1 , 2 ", [1, 2], [0, 2]),
        ("1x", [1], [2]),
        ("+1", [1], [2]),
        ("0,2,-1,1", [0, 2], [0, 1]),  # the example of the CUDA guide: -1 ends the list
        ("0,7,1", [0], [1]),
        ("7", [], []),
        ("0,0", [], []),  # a card named twice hides all
        ("", [], []),
        ("-1", [], []),
        ("NoDevFiles", [], []),
        ("99999999999999999999", [], []),
        ("GPU-aa11-1", [0], [0]),  # names are the same in both orders
        ("GPU-aa", [0], [0]),
        ("gpu-AA", [0], [0]),
        ("GPU-bb33,GPU-aa", [0, 2], [0, 2]),
        ("GPU-bb", [], []),  # fits two cards
        ("GPU-", [], []),
        ("GPU-aa,GPU-none,GPU-bb22", [0], [0]),
        ("GPU-aa,GPU-aa11", [], []),
        ("MIG-aa", [], []),  # no card here is cut into instances
        ("MIG-", [], []),
    ],
)
def test_cuda_visible_devices(said: str, in_bus_order: list[int], fastest_first: list[int]) -> None:
    assert shown(MIXED, said, **PCI)[0] == in_bus_order
    assert shown(MIXED, said, **FASTEST)[0] == fastest_first
    # Fastest first is CUDA's order where nothing is said.
    assert shown(MIXED, said)[0] == fastest_first
    # Cards of one kind are in bus order either way.
    assert shown(ALIKE, said)[0] == in_bus_order


def test_nothing_said_hides_nothing() -> None:
    notes = Notes()
    assert cuda_visible(MIXED, {}, notes) == tuple(c.gpu for c in MIXED)
    assert notes.all() == ()


def test_what_is_hidden_is_named() -> None:
    _, notes = shown(MIXED, "GPU-aa", **PCI)
    assert notes == (
        "CUDA_VISIBLE_DEVICES=GPU-aa hides GPU 1: RTX 5090 (GPU-bb22-2); "
        "GPU 2: RTX 4090 (GPU-bb33-3)"
    )
    _, notes = shown(MIXED, "0,5,1", **PCI)
    assert "'5' is no number of a card (0 to 2); it and what follows it count for" in notes
    _, notes = shown(MIXED, "GPU-bb", **PCI)
    assert "'GPU-bb' is the begin of 2 names here, not of one" in notes
    _, notes = shown(MIXED, "1,1", **PCI)
    assert "names 1 twice: then no card is visible" in notes


def test_the_assumed_order_is_told_where_it_matters() -> None:
    _, notes = shown(MIXED, "0")
    assert "fastest first, taken to be 0 RTX 5090, 1 RTX 4090, 2 RTX 3060" in notes
    assert "set CUDA_DEVICE_ORDER=PCI_BUS_ID" in notes
    for said, environment in (("0", PCI), ("GPU-aa", {}), ("", {})):
        assert "fastest" not in shown(MIXED, said, **environment)[1]
    assert "fastest" not in shown(ALIKE, "0")[1]
    # Where speeds are not known, bus order is assumed, and told.
    unknown = tuple(replace(c, gpu=replace(c.gpu, cores=0)) for c in MIXED)
    indices, notes = shown(unknown, "0")
    assert indices == [0]
    assert "taken to be 0 RTX 3060" in notes


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("MIG-3c7d-big", ["MIG-3c7d-big"]),
        ("MIG-3c9e", ["MIG-3c9e-small"]),
        ("MIG-GPU-h100-0/9/0", ["MIG-3c9e-small"]),  # as drivers before 470 wrote it
        ("MIG-3c9e-small,MIG-3c7d-big", ["MIG-3c9e-small"]),  # a process gets one
        ("MIG-3c", []),  # fits both
        ("MIG-none", []),
        ("0", ["MIG-3c7d-big"]),  # the card that is cut: its first instance
        ("1", ["GPU-h100-1"]),
        ("0,1", ["GPU-h100-1"]),  # never both kinds
        ("GPU-h100-0", ["MIG-3c7d-big"]),
    ],
)
def test_instances_of_a_card(said: str, expected: list[str]) -> None:
    machine = nvidia_machines.mig_h100({"CUDA_VISIBLE_DEVICES": said})
    assert [gpu.uuid for gpu in probe(machine).gpus] == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HIP_VISIBLE_DEVICES": "0,2"}, [0, 2]),
        ({"HIP_VISIBLE_DEVICES": "3"}, [3]),
        ({"HIP_VISIBLE_DEVICES": "1,9,2"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
        ({"HIP_VISIBLE_DEVICES": ""}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": "1,3"}, [1, 3]),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
        ({"ROCR_VISIBLE_DEVICES": "GPU-00000000000000a2"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": "0,GPU-00000000000000A3"}, [0, 3]),
        # HIP counts what the runtime below it left: the second of cards 1 and 3.
        ({"ROCR_VISIBLE_DEVICES": "1,3", "HIP_VISIBLE_DEVICES": "1"}, [3]),
        ({"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "1"}, []),
    ],
)
def test_cards_of_amd(environment: dict[str, str], expected: list[int]) -> None:
    found = probe(other_machines.four_r9700(environment))
    assert [gpu.index for gpu in found.gpus] == expected
    if len(expected) < 4:
        variables = [name for name in environment if f"{name}=" in " ".join(found.notes)]
        assert variables, found.notes


WORDS = st.sampled_from(["0", "1", "2", "-1", "GPU-aa", "GPU-bb22", "MIG-1", "", "x", "7"])


@given(st.lists(WORDS, max_size=5), st.sampled_from([PCI, FASTEST, {}]))
def test_what_is_shown_and_what_is_named_as_hidden_is_everything(
    words: list[str], environment: dict[str, str]
) -> None:
    indices, notes = shown(MIXED, ",".join(words), **environment)
    assert indices == sorted(set(indices))
    for c in MIXED:
        hidden = f"GPU {c.gpu.index}: {c.gpu.name} ({c.gpu.uuid})" in notes
        assert hidden == (c.gpu.index not in indices)


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_shows_some_of_the_cards(hip: str, rocr: str) -> None:
    gpus = [c.gpu for c in MIXED]
    environment = {"HIP_VISIBLE_DEVICES": hip, "ROCR_VISIBLE_DEVICES": rocr}
    assert set(hip_visible(gpus, environment, Notes())) <= set(gpus)
    assert set(shown(MIXED, hip)[0]) <= {0, 1, 2}
