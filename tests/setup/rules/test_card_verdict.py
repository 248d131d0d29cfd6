"""Which card is usable: both sides of every limit."""

from __future__ import annotations

import pytest

from engine.hardware import Gpu
from setup.rules.card_verdict import (
    AMD_ARCHS,
    NO_OPT_INS,
    OptIns,
    capability,
    identity,
    needs_cuda12,
    read_opt_ins,
    sizing_gib,
    title,
    verdict,
)
from tests.setup.rules.cards_of import GIB, amd, nvidia, pc

NEWER = nvidia(9, 12, "12.0")
OLD = OptIns(cuda12=True)


@pytest.mark.parametrize(
    ("arch", "alone", "beside_newer", "named"),
    [
        ("12.0", True, True, True),
        ("8.9", True, True, True),
        ("89", True, True, True),  # as some tools write it
        ("120", True, True, True),
        ("7.5", True, True, True),
        ("7.2", False, False, False),  # between Volta and Turing
        ("7.0", True, False, True),  # Volta and Pascal: named, or the only kind
        ("6.1", True, False, True),
        ("6.0", True, False, True),
        ("5.2", False, False, False),
        ("", False, False, False),
        ("N/A", False, False, False),
        ("gfx1201", False, False, False),
    ],
)
def test_compute_capability(arch: str, alone: bool, beside_newer: bool, named: bool) -> None:
    card = nvidia(0, 16, arch)
    assert verdict(card, pc(card)).usable is alone
    assert verdict(card, pc(card, NEWER)).usable is beside_newer
    assert verdict(card, pc(card, NEWER), named=True).usable is named
    assert verdict(card, pc(card, NEWER), opt_ins=OLD).usable is named


def test_an_old_card_waits_for_a_supported_amd_card_too() -> None:
    old = nvidia(0, 16, "6.1")
    assert not verdict(old, pc(old, amd(0, 16))).usable
    assert verdict(old, pc(old, amd(0, 8, "gfx1102"))).usable  # that one is not supported
    assert "GPU 0 or STRATA" not in verdict(old, pc(old, NEWER)).reason
    assert "--gpu 0 or STRATA_EXPERIMENTAL_SM60=1" in verdict(old, pc(old, NEWER)).reason


@pytest.mark.parametrize(
    ("arch", "driver", "facts", "opt_ins", "usable"),
    [
        ("8.9", "580.95.05", {}, NO_OPT_INS, True),  # CUDA 13
        ("8.9", "580", {}, NO_OPT_INS, True),
        ("8.9", "579.99", {}, NO_OPT_INS, False),
        ("8.9", "1000.1", {}, NO_OPT_INS, True),
        ("8.9", "", {}, NO_OPT_INS, True),  # not known
        ("8.9", "[N/A]", {}, NO_OPT_INS, True),
        ("6.1", "525.60", {}, NO_OPT_INS, True),  # CUDA 12 on Linux
        ("6.1", "524.99", {}, NO_OPT_INS, False),
        ("6.1", "527.99", {"os": "windows"}, NO_OPT_INS, False),  # and on Windows
        ("6.1", "528.02", {"os": "windows"}, NO_OPT_INS, True),
        ("6.1", "527.99", {"wsl": True}, NO_OPT_INS, False),  # the driver of Windows
        ("8.9", "525.60", {}, OLD, True),  # CUDA 12 was asked for
        ("8.9", "524.99", {}, OLD, False),
    ],
)
def test_driver(
    arch: str, driver: str, facts: dict[str, object], opt_ins: OptIns, usable: bool
) -> None:
    card = nvidia(0, 16, arch, driver=driver)
    found = verdict(card, pc(card, **facts), opt_ins=opt_ins)
    assert found.usable is usable
    assert ("is too old" in found.reason) is not usable


@pytest.mark.parametrize("arch", AMD_ARCHS)
def test_supported_amd(arch: str) -> None:
    card = amd(0, 16, arch)
    assert verdict(card, pc(card)).usable


@pytest.mark.parametrize(
    "arch", ["gfx1102", "gfx110", "gfx11000", "gfx906", "gfx1150", "gfx1152", ""]
)
def test_amd_is_matched_whole(arch: str) -> None:
    card = amd(0, 16, arch)
    for named in (False, True):  # naming it does not help
        assert not verdict(card, pc(card), named=named).usable


def test_the_trial_of_gfx1103() -> None:
    card = amd(0, 4, "gfx1103", integrated=True)
    refused = verdict(card, pc(card), named=True)
    assert not refused.usable
    assert "STRATA_EXPERIMENTAL_GFX1103=1" in refused.reason
    assert verdict(card, pc(card), opt_ins=OptIns(gfx1103=True)).usable


@pytest.mark.parametrize("vendor", ["intel", "", "apple"])
def test_other_makers(vendor: str) -> None:
    card = nvidia(0, 16, vendor=vendor)
    found = verdict(card, pc(card))
    assert not found.usable
    assert "NVIDIA and AMD cards are supported" in found.reason


def test_memory_that_is_not_known() -> None:
    card = nvidia(0, 0)
    assert verdict(card, pc(card)).reason == "its memory is not known"
    board = nvidia(0, 0, "12.1", integrated=True, shared_bytes=119 * GIB)
    assert verdict(board, pc(board)).usable


@pytest.mark.parametrize(
    ("environment", "cuda", "expected"),
    [
        ({}, None, OptIns()),
        ({"STRATA_EXPERIMENTAL_SM60": "1"}, None, OptIns(cuda12=True)),
        ({"STRATA_EXPERIMENTAL_SM60": " 1 "}, None, OptIns(cuda12=True)),
        ({"STRATA_EXPERIMENTAL_SM60": "0"}, None, OptIns()),
        ({}, 12, OptIns(cuda12=True)),
        ({}, 13, OptIns()),
        ({"STRATA_EXPERIMENTAL_GFX1103": "1"}, None, OptIns(gfx1103=True)),
    ],
)
def test_opt_ins(environment: dict[str, str], cuda: int | None, expected: OptIns) -> None:
    assert read_opt_ins(environment, cuda) == expected


def test_cuda12_for_the_oldest_card() -> None:
    assert needs_cuda12((NEWER, nvidia(0, 16, "6.1")))
    assert not needs_cuda12((NEWER,))
    assert needs_cuda12((NEWER,), OLD)
    assert not needs_cuda12((amd(0, 16),), OLD)


@pytest.mark.parametrize(
    ("card", "ram", "size"),
    [
        (nvidia(0, 24), 64, 24.0),
        # carve-out + what may be shared, but 6 GiB stay
        (amd(0, 4, "gfx1151", integrated=True, shared_bytes=62 * GIB), 124, 66.0),
        (amd(0, 4, "gfx1151", integrated=True, shared_bytes=62 * GIB), 60, 58.0),  # 4 + 60 - 6
        (amd(0, 4, "gfx1151", integrated=True), 60, 34.0),  # not recorded: half of it
        (amd(0, 96, "gfx1151", integrated=True, shared_bytes=16 * GIB), 31, 112.0),
        (amd(0, 2, "gfx1151", integrated=True), 4, 2.0),  # nothing to share
        (nvidia(0, 0, "12.1", integrated=True, shared_bytes=119 * GIB), 119, 113.0),
    ],
)
def test_memory_for_sizes(card: Gpu, ram: float, size: float) -> None:
    assert sizing_gib(card, pc(card, ram_gib=ram)) == pytest.approx(size)


def test_names() -> None:
    card = nvidia(3, 11.94, uuid="", pci_bus_id="0000:65:00.0")
    assert identity(card) == "0000:65:00.0"
    assert identity(nvidia(3, 12, uuid="", pci_bus_id="")) == "nvidia 3"
    assert title(card) == "GPU 3 (RTX 3, 11.9 GiB)"
    assert title(amd(0, 4, integrated=True)) == "GPU 0 (Radeon 0, integrated, 4.0 GiB of its own)"
    board = nvidia(0, 0, integrated=True)
    assert title(board) == "GPU 0 (RTX 0, integrated, no memory of its own)"
    assert capability(amd(0, 4, "8.9")) is None
