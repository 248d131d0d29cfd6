"""Low-memory modes: the published examples and both sides of every line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError
from setup.models.catalogue import ModelRow, catalogue, find_row, spare_gib
from setup.rules.low_ram import gpu_gb, low_ram, paging_risk, slow_share

QWEN36 = "Qwen3.6-UD-IQ3_S"
ROWS = st.sampled_from(catalogue())


@pytest.mark.parametrize(
    ("name", "ram", "cards", "context", "held", "mode", "fits"),
    [
        # held: VRAM - 5; resident: RAM >= experts - held + 10; fits: RAM - 6 + VRAM - 5 >= experts
        ("IQ1_M", 31.8, [16], 32_768, 11.0, "resident", True),  # 23.4 - 11 + 10 = 22.4
        ("Q2_0", 31.8, [16], 32_768, 11.0, "mmap", True),  # 34 - 11 + 10 = 33; 25.8 + 11 = 36.8
        ("IQ2_XS", 31.8, [16], 32_768, 11.0, "mmap", True),  # 34.5 needed; 36.8 >= 35.5
        ("IQ3_XXS", 31.8, [16], 32_768, 11.0, "mmap", False),  # 36.8 < 42.9
        ("Q2_0", 31.3, [24], 32_768, 19.0, "resident", True),  # 34 - 19 + 10 = 25
        ("Q2_0", 31.9, [24, 24], 32_768, 34.0, "resident", True),  # 38, never above 34; 10 needed
        ("IQ3_XXS", 31.9, [24, 24], 32_768, 38.0, "resident", True),  # 42.9 - 38 + 10 = 14.9
        ("IQ3_S", 31.9, [24, 24], 32_768, 38.0, "resident", True),  # 50.3 - 38 + 10 = 22.3
        ("Q2_0", 31.9, [24, 24], 131_072, 34.0, "resident", True),  # 2 * (19 - 1.35) = 35.3
        ("Q2_0", 47.0, [16, 16], 65_536, 21.10, None, True),  # 34 + 10 = 44 <= 47
        ("IQ3_XXS", 47.0, [16, 16], 65_536, 21.10, "resident", True),  # 42.9 - 21.1 + 10 = 31.8
        ("IQ3_S", 47.0, [16, 16], 65_536, 21.10, "resident", True),  # 50.3 - 21.1 + 10 = 39.2
        (QWEN36, 15.6, [11.9], 32_768, 6.9, "mmap", True),  # 12.9 - 6.9 + 10 = 16; 9.6 + 6.9
        (QWEN36, 15.6, [7.99], 8_192, 2.99, "mmap", False),  # 9.6 + 2.99 = 12.59 < 12.9
        # no card at all, and a card with less than its fixed costs
        ("Q2_0", 31.8, [], 32_768, 0.0, "mmap", False),  # 25.8 < 34
        ("Q2_0", 40.0, [4], 32_768, 0.0, "mmap", True),  # 34 <= 34
        ("Q2_0", 44.0, [], 32_768, 0.0, None, True),
    ],
)
def test_worked_examples(
    name: str,
    ram: float,
    cards: list[float],
    context: int,
    held: float,
    mode: str | None,
    fits: bool,
) -> None:
    found = low_ram(find_row(name), ram, cards, context, "int8")
    assert found.gpu_gb == pytest.approx(held, abs=0.01)
    assert (found.needed, found.mode, found.fits) == (mode is not None, mode, fits)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("IQ1_M", 33.4),  # 23.4 + 10
        ("Q2_0", 44.0),  # 34 + 10
        ("IQ2_XS", 45.5),
        ("IQ3_XXS", 52.9),
        ("IQ3_S", 60.3),
        (QWEN36, 22.9),
        ("Qwen3.6-UD-IQ4_XS", 25.2),
    ],
)
def test_both_sides_of_needing_it(name: str, line: float) -> None:
    row = find_row(name)
    assert not low_ram(row, line + 0.01, [16], 32_768, "int8").needed
    assert low_ram(row, line - 0.01, [16], 32_768, "int8").needed


@pytest.mark.parametrize(
    ("ram", "mode"),
    [(33.0, "resident"), (32.99, "mmap")],  # Q2_0 beside 16 GiB: 34 - 11 + 10 = 33
)
def test_both_sides_of_resident(ram: float, mode: str) -> None:
    assert low_ram(find_row("Q2_0"), ram, [16], 32_768, "int8").mode == mode


@pytest.mark.parametrize(
    ("kv", "held"),
    [
        # 24 - 5 - (131072 - 32768) * 13 * cell / 1e9
        ("int8", 17.65),  # 98304 * 13 * 1056 = 1.350
        ("k8v4", 17.957),  # 98304 * 13 * 816 = 1.043
        ("q4_0", 18.264),  # 98304 * 13 * 576 = 0.736
    ],
)
def test_longer_contexts_take_room_from_experts(kv: str, held: float) -> None:
    assert gpu_gb(find_row("IQ3_S"), [24], 131_072, kv) == pytest.approx(held, abs=0.001)
    assert gpu_gb(find_row("IQ3_S"), [24], 32_768, kv) == 19
    assert gpu_gb(find_row("IQ3_S"), [24], 32_769, kv) < 19
    assert gpu_gb(find_row("IQ3_S"), [24], 8_192, kv) == 19


def test_layers_come_from_the_model() -> None:
    # 10 attention layers and the draft layer: 98304 * 11 * 1056 / 1e9 = 1.142
    assert gpu_gb(find_row(QWEN36), [12], 131_072, "int8") == pytest.approx(7 - 1.142, abs=0.001)


def test_images_take_700_mib_of_the_first_card() -> None:
    row = find_row("IQ3_S")
    # 16 - 5 - 700 / 1024 = 10.31641
    assert low_ram(row, 32, [16], 32_768, "int8", images=True).gpu_gb == pytest.approx(10.31641)
    both = low_ram(row, 32, [16, 16], 32_768, "int8", images=True)
    assert both.gpu_gb == pytest.approx(21.31641)


def test_small_models_need_no_mode() -> None:
    # a file of 0.5 GB with 0.4 GB of experts: 0.4 + min(10, 2 + 0.5) = 2.9
    tiny = replace(find_row("Q2_0"), arena_gb=0.4, download_gb=0.5)
    assert not low_ram(tiny, 2.9, [], 2048, "fp16").needed
    assert low_ram(tiny, 2.89, [], 2048, "fp16").mode == "mmap"
    assert low_ram(tiny, 2.89, [5.1], 2048, "fp16").mode == "resident"  # 2.8 beside 0.1 there
    assert low_ram(tiny, 4.0, [], 2048, "fp16").reason == (
        "no low-memory mode: RAM holds all experts, 0.4 GB + 2.5 GiB = 2.9 of 4.0 GiB, "
        "with a GB counted as a GiB"
    )


@pytest.mark.parametrize("row", catalogue(), ids=lambda row: row.tag)
def test_every_published_model_leaves_ten(row: ModelRow) -> None:
    assert spare_gib(row.download_gb) == 10


def test_models_with_a_budget_never_use_it() -> None:
    for asked in ("auto", "on", "off", "resident", "mmap"):
        found = low_ram(find_row("UD-Q4_K_XL"), 20.0, [12], 8_192, "fp16", asked)
        assert (found.needed, found.mode) == (False, None)
        assert "budget" in found.reason


@pytest.mark.parametrize(
    ("asked", "ram", "mode"),
    [
        ("off", 16.0, None),
        ("on", 256.0, "resident"),  # the rule chooses the kind
        ("on", 31.8, "mmap"),
        ("resident", 31.8, "resident"),
        ("resident", 256.0, "resident"),
        ("mmap", 256.0, "mmap"),
    ],
)
def test_what_is_asked_is_kept(asked: str, ram: float, mode: str | None) -> None:
    found = low_ram(find_row("Q2_0"), ram, [16], 32_768, "int8", asked)
    assert (found.needed, found.mode) == (mode is not None, mode)
    assert "as asked" in found.reason


def test_a_choice_against_the_rule_is_told() -> None:
    row = find_row("Q2_0")
    resident = low_ram(row, 31.8, [16], 32_768, "int8", "resident").reason
    assert resident.endswith("recommended is mmap")
    assert low_ram(row, 256.0, [16], 32_768, "int8", "mmap").reason.endswith(
        "recommended is resident"
    )
    assert "recommended" not in low_ram(row, 31.8, [16], 32_768, "int8", "mmap").reason


def test_the_reason_has_the_sum() -> None:
    assert low_ram(find_row("Q2_0"), 31.8, [16], 32_768, "int8").reason == (
        "low memory, mmap: experts that no card holds are read from the file, "
        "34 - 11.0 GB + 10 GiB = 33.0 of 31.8 GiB, with a GB counted as a GiB"
    )
    assert low_ram(find_row("Q2_0"), 47.0, [16], 32_768, "int8").reason == (
        "no low-memory mode: RAM holds all experts, 34 GB + 10 GiB = 44.0 of 47.0 GiB, "
        "with a GB counted as a GiB"
    )


@pytest.mark.parametrize("asked", ["", "yes", "Auto", "none"])
def test_unknown_answers(asked: str) -> None:
    with pytest.raises(ConfigError, match="allowed is one of auto, on, off, resident, mmap"):
        low_ram(find_row("Q2_0"), 64.0, [16], 32_768, "int8", asked)


@pytest.mark.parametrize(
    ("card", "warns"),
    [
        (16.0, True),  # 11 of 34 GB: 32%
        (25.39, True),  # 20.39 of 34: 59.97%
        (25.41, False),  # 20.41 of 34: 60.03%
    ],
)
def test_reading_most_experts_from_the_disk_is_slow(card: float, warns: bool) -> None:
    row = find_row("Q2_0")
    found = low_ram(row, 16.0, [card], 32_768, "int8")
    assert found.mode == "mmap"
    assert (slow_share(row, found) is not None) == warns


def test_only_mmap_is_slow() -> None:
    row = find_row("IQ1_M")
    assert slow_share(row, low_ram(row, 31.8, [16], 32_768, "int8")) is None  # resident, 47%
    assert slow_share(row, low_ram(row, 64.0, [16], 32_768, "int8")) is None
    q2 = find_row("Q2_0")
    assert slow_share(q2, low_ram(q2, 31.8, [16], 32_768, "int8")) == (
        "the cards hold 11.0 of 34 GB of experts (32%, under 60%): the rest is read from the "
        "disk, which is slow"
    )


@pytest.mark.parametrize(
    ("asked", "ram", "risk"),
    [
        ("off", 43.99, True),  # Q2_0: line 48 - 4 = 44
        ("off", 44.0, False),
        ("auto", 16.0, False),
        ("mmap", 16.0, False),
    ],
)
def test_off_risks_paging(asked: str, ram: float, risk: bool) -> None:
    told = paging_risk(find_row("Q2_0"), ram, asked)
    assert (told is not None) == risk
    if told:
        assert "48 GiB" in told
        assert "44.0" in told


@given(
    row=ROWS,
    ram=st.floats(4, 1024),
    cards=st.lists(st.floats(2, 200), max_size=4),
    context=st.sampled_from((8_192, 32_768, 131_072, 524_288)),
)
def test_what_holds_of_every_machine(
    row: ModelRow, ram: float, cards: list[float], context: int
) -> None:
    found = low_ram(row, ram, cards, context, "int8")
    assert 0 <= found.gpu_gb <= row.arena_gb
    assert found.needed == (found.mode is not None)
    if found.mode == "resident":
        # what no card holds, and 10 for the rest, is there
        assert ram >= row.arena_gb - found.gpu_gb + 10
    # more RAM never asks for a slower mode
    order = {None: 0, "resident": 1, "mmap": 2}
    assert order[low_ram(row, ram + 8, cards, context, "int8").mode] <= order[found.mode]
