"""All tips together, each with a feature of the engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.capabilities import FEATURES
from engine.errors import ConfigError
from setup.catalogue import find_row
from setup.rules.tips import tips
from tests.machines import CARD, machine

SMALL = replace(CARD, vram_bytes=6 << 30, display=True)
ROW = find_row("Q2_0")


def test_a_machine_that_gets_most_of_them() -> None:
    hardware = machine(gpus=(SMALL,))
    hardware = replace(
        hardware,
        os="windows",
        ram_bytes=128 << 30,
        cpu=replace(hardware.cpu, cores=32, sockets=2),
    )
    found = tips(ROW, hardware, (SMALL,), images=True)
    assert [tip.feature for tip in found] == [
        "cuda",  # slow
        "cuda",  # no page file
        "draft_vocab",  # very small
        "expert_cache",  # long prefill
        "workers",  # two sockets
        "conversation_cache",  # 128 - 48 = 80 to spare
        "vram_reserve",  # images
        "vram_reserve",  # a screen
    ]
    assert {tip.feature for tip in found} <= {feature.name for feature in FEATURES}


def test_a_machine_without_a_card() -> None:
    assert tips(ROW, replace(machine(), ram_bytes=32 << 30), ()) == ()


def test_amd() -> None:
    card = replace(CARD, vendor="amd", arch="gfx1201", vram_bytes=10 << 30)
    hardware = replace(machine(gpus=(card,)), desktop=True, ram_bytes=32 << 30)
    found = tips(ROW, hardware, (card,))
    assert [tip.feature for tip in found] == ["hip", "draft_vocab", "vram_reserve"]
    assert "3072" in found[-1].text


def test_what_was_asked_needs_no_tip() -> None:
    card = replace(CARD, display=True)  # 11.9 GiB
    hardware = replace(machine(gpus=(card,)), ram_bytes=96 << 30)
    asked = tips(
        replace(ROW, ram_gib=90.0), hardware, (card,), draft_vocab="en", prefill="2048",
        reserve_mib=700, images=True,
    )  # fmt: skip
    assert asked == ()


def test_a_vocabulary_that_is_not_there() -> None:
    for card in (CARD, SMALL):
        with pytest.raises(ConfigError):
            tips(ROW, machine(gpus=(card,)), (card,), draft_vocab="de")
