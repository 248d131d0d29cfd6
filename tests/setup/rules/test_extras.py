"""Small rules and tips, both sides of each line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from setup.models.catalogue import find_row
from setup.rules.extras import (
    amd_desktop_tip,
    conversation_cache_tip,
    display_tip,
    page_file_warning,
    ple_io,
    prefill_tip,
    slow_card_warning,
    small_card_tip,
    vision_reserve_tip,
)
from tests.machines import CARD, machine

GIB = 1 << 30


@pytest.mark.parametrize(
    ("cards", "told"),
    [([10.99], True), ([11.0], False), ([8, 8], True), ([8, 24], False), ([], False)],
)
def test_slow_cards(cards: list[float], told: bool) -> None:
    warning = slow_card_warning(cards)
    assert (warning is not None) == told
    if warning:
        assert f"{max(cards):.1f} GiB" in warning
        assert "less than 12 GB" in warning


@pytest.mark.parametrize(
    ("cards", "told"), [([7.49], True), ([7.5], False), ([24, 6], True), ([], False)]
)
def test_very_small_cards(cards: list[float], told: bool) -> None:
    tip = small_card_tip(cards)
    assert (tip is not None) == told
    if tip:
        assert "--context 8192" in tip
        assert "--draft-vocab en" in tip


@pytest.mark.parametrize(
    ("os", "cards", "swap_gib", "told"),
    [
        ("windows", 1, 3.99, True),
        ("windows", 1, 4.0, False),
        ("windows", 1, 0.0, True),
        ("windows", 0, 0.0, False),  # no card, no memory of a card to charge
        ("linux", 1, 0.0, False),
    ],
)
def test_page_file(os: str, cards: int, swap_gib: float, told: bool) -> None:
    hardware = replace(machine(gpus=(CARD,) * cards), os=os, swap_bytes=int(swap_gib * GIB))
    assert (page_file_warning(hardware) is not None) == told


@pytest.mark.parametrize(
    ("name", "ram", "rotational", "value"),
    [
        # RAM line + table + 4
        ("Q2_0", 80.81, True, "ram"),  # 48 + 28.8 + 4 = 80.8
        ("Q2_0", 80.79, True, None),
        ("IQ3_S", 94.81, True, "ram"),  # 62 + 28.8 + 4 = 94.8
        ("IQ3_S", 94.79, True, None),
        ("IQ3_S", 512.0, False, None),  # only where the disk turns
        ("Qwen3.6-UD-IQ4_XS", 512.0, True, None),  # it has no table
    ],
)
def test_table_in_ram(name: str, ram: float, rotational: bool, value: str | None) -> None:
    found, why = ple_io(find_row(name), ram, rotational)
    assert found == value
    assert why.startswith("ple-io")


def test_table_says_its_sum() -> None:
    assert ple_io(find_row("Q2_0"), 96.0, True)[1] == (
        "ple-io ram: the disk turns, and RAM holds the n-gram table, "
        "48 GiB + 28.8 GB + 4 GiB = 80.8 of 96.0 GiB, with a GB counted as a GiB"
    )


@pytest.mark.parametrize(("ram", "told"), [(95.99, False), (96.0, True), (255.0, True)])
def test_prefill(ram: float, told: bool) -> None:
    tip = prefill_tip(ram)
    assert (tip is not None) == told
    if tip:
        assert "--prefill auto:32768" in tip


@pytest.mark.parametrize(
    ("name", "ram", "told"),
    [("IQ3_S", 86.0, True), ("IQ3_S", 85.99, False), ("Q2_0", 72.0, True), ("Q2_0", 63.7, False)],
)
def test_conversation_cache(name: str, ram: float, told: bool) -> None:
    # RAM - line >= 24: IQ3_S 62 + 24 = 86, Q2_0 48 + 24 = 72
    tip = conversation_cache_tip(find_row(name), ram)
    assert (tip is not None) == told
    if tip:
        assert "--conversation-cache-mib 8192" in tip
        assert f"= {ram - find_row(name).ram_gib:.1f} GiB" in tip


@pytest.mark.parametrize(
    ("cards", "told"), [([12.5], True), ([12.51], False), ([24, 8], True), ([], False)]
)
def test_images_on_small_cards(cards: list[float], told: bool) -> None:
    tip = vision_reserve_tip(cards)
    assert (tip is not None) == told
    if tip:
        assert "--vram-reserve-mib 1000 leaves more room than 700" in tip


def test_display() -> None:
    plain = replace(CARD, index=1, name="B")
    shown = replace(CARD, display=True)
    assert display_tip([CARD, plain]) is None
    assert display_tip([]) is None
    tip = display_tip([plain, shown])
    assert tip is not None
    assert CARD.name in tip
    assert "--vram-reserve-mib 1500" in tip
    assert display_tip([replace(shown, vendor="amd")]) is None


@pytest.mark.parametrize(
    ("vendor", "os", "desktop", "told"),
    [
        ("amd", "linux", True, True),
        ("amd", "linux", False, False),
        ("amd", "windows", True, False),
        ("nvidia", "linux", True, False),
    ],
)
def test_amd_desktop(vendor: str, os: str, desktop: bool, told: bool) -> None:
    tip = amd_desktop_tip([replace(CARD, vendor=vendor)], os, desktop)
    assert (tip is not None) == told
    if tip:
        assert "--vram-reserve-mib 3072" in tip
