"""Speeds of cards beside each other, and the order under `auto`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.hardware import Gpu
from setup.rules.card_speed import REFERENCE_MS, auto_order, layer_ms
from tests.machines import CARD


def card(index: int, arch: str, cores: int, clock_mhz: int, vendor: str = "nvidia") -> Gpu:
    return replace(
        CARD, index=index, uuid=f"GPU-{index}", arch=arch, cores=cores, clock_mhz=clock_mhz,
        vendor=vendor,
    )  # fmt: skip


RTX_5080 = card(0, "12.0", 10_752, 3090)  # 84 multiprocessors of 128
RTX_3090 = card(1, "8.6", 10_496, 2100)  # 82 of 128
RTX_2080_TI = card(2, "7.5", 4352, 2100)  # 68 of 64
UNKNOWN = card(3, "8.6", 0, 0)


def test_the_measured_card() -> None:
    assert layer_ms([RTX_5080]) == (pytest.approx(0.33),)


def test_multiprocessors_times_clock() -> None:
    # 0.33 * 84 * 3090 = 85655: over 82 * 2100 = 172200 and over 68 * 2100 = 142800
    assert layer_ms([RTX_3090, RTX_2080_TI]) == (
        pytest.approx(0.4974, abs=1e-4),
        pytest.approx(0.5998, abs=1e-4),
    )


def test_one_unknown_card_makes_all_equal() -> None:
    assert layer_ms([RTX_5080, UNKNOWN]) == (REFERENCE_MS, REFERENCE_MS)
    assert layer_ms([]) == ()


def test_the_fastest_goes_last() -> None:
    assert auto_order([RTX_5080, RTX_3090]) == (RTX_3090, RTX_5080)
    assert auto_order([RTX_3090, RTX_5080, RTX_2080_TI]) == (RTX_3090, RTX_2080_TI, RTX_5080)


def test_the_order_of_equal_or_unknown_cards_stays() -> None:
    twin = replace(RTX_3090, index=5, uuid="GPU-5")
    assert auto_order([twin, RTX_3090]) == (twin, RTX_3090)
    assert auto_order([RTX_5080, UNKNOWN]) == (RTX_5080, UNKNOWN)
    assert auto_order([]) == ()
