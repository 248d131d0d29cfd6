"""The rules on recorded machines. Expected values: `tests/setup/expected`, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ConfigError
from setup.asked import Asked
from setup.models.catalogue import catalogue, find_row
from setup.models.catalogue_info import info_of
from setup.recommend import Recommendation, Subject, recommend
from setup.rules.size import recommend_row
from setup.rules.workers import pool_workers, socket_tip
from tests.setup.expected.case import K32, NOTHING, Case, machine, machine_names
from tests.setup.expected.common_cards import COMMON_CARDS
from tests.setup.expected.large_cards import LARGE_CARDS
from tests.setup.expected.several_cards import SEVERAL_CARDS
from tests.setup.expected.small_machines import SMALL_MACHINES

CASES = COMMON_CARDS + LARGE_CARDS + SEVERAL_CARDS + SMALL_MACHINES


def recommended(name: str, model: str, asked: Asked, family: str | None = None) -> Recommendation:
    row = find_row(model, family)
    return recommend(Subject(row, info_of(row), None), machine(name), asked, Path("/nowhere"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_rules_choose(case: Case) -> None:
    rule = recommended(case.machine, case.model, case.asked).rule
    found = {
        "cards": tuple(card.index for card in rule.cards),
        "budget": rule.resident_budget_gib,
        **rule.document(),
    }
    expected = {
        "cards": case.cards,
        "context": case.context,
        "parallel": case.parallel,
        "kv": case.kv,
        "kv_resident": case.kv_resident,
        "layer_split": case.split,
        "low_ram": case.low_ram,
        "profile": None,
        "budget": case.budget,
    }
    described = {key: value for key, value in expected.items() if value is not ...}
    assert {key: found[key] for key in described} == described


def test_every_recorded_machine_has_an_expected_choice() -> None:
    assert set(machine_names()) - {case.machine for case in CASES} <= {"4xr9700-256gb", "h200"}


@pytest.mark.parametrize(
    "asked",
    [
        # The newer description fills the profile in by itself; `--gpus all` must agree.
        K32,
        Asked(context=32_768, gpus="all"),
        # Four R9700, 31.859 >= 28 each, IQ3_S.
        Asked(context=32_768, gpus=(0, 1, 2, 3)),
    ],
)
def test_four_r9700_get_their_profile(asked: Asked) -> None:
    rule = recommended("4xr9700-256gb", "IQ3_S", asked).rule
    assert rule.document()["profile"] is not None
    # 32 slots; (48 + 4) / 4 = 13 layers, the head counts as 4: 13, 26, 39.
    assert (rule.parallel, rule.layer_split) == (32, "13,26,39")
    assert [card.index for card in rule.cards] == [0, 1, 2, 3]
    # 31.859 >= 20 would allow 131072; asked was 32768.
    assert (rule.context, rule.kv, rule.kv_resident) == (32_768, "int8", None)


def test_the_profile_is_for_four_cards_and_one_model() -> None:
    # Q2_0: the rules' own 4 slots, cache 4 * 26.859 = 107.4.
    rule = recommended("4xr9700-256gb", "Q2_0", Asked(context=32_768, gpus="all")).rule
    assert rule.document() | {"reasons": None} == {
        "parallel": 4,
        "layer_split": "auto",
        "context": 32_768,
        "kv": "int8",
        "kv_resident": None,
        "low_ram": None,
        "profile": None,
        "reasons": None,
    }
    # Two of the four: cache 53.7, 4 slots.
    rule = recommended("4xr9700-256gb", "IQ3_S", Asked(context=32_768, gpus=(0, 1))).rule
    assert (rule.document()["profile"], rule.parallel, rule.layer_split) == (None, 4, "auto")
    # A split that the person gives wins over the profile's.
    asked = Asked(context=32_768, gpus="all", layer_split="12,24,36")
    assert recommended("4xr9700-256gb", "IQ3_S", asked).rule.layer_split == "12,24,36"


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("2x4090-128gb", Asked(gpus=(0, 0)), ()),
        ("2x4090-128gb", Asked(gpus=(0, 2)), ("2",)),
        # One rising number from 2 on for each card after the first; round(48 * (i + 1) / n).
        ("2x4090-128gb", Asked(layer_split="1"), ("24",)),
        ("2x4090-128gb", Asked(layer_split="24,36"), ("24,36", "24")),
        ("2x4090-128gb", Asked(layer_split=[24.5]), ("24.5",)),
        ("2x4090-128gb", Asked(layer_split=[True]), ("24",)),
        ("4xa4000-128gb", Asked(gpus="all", layer_split="24,16,12,12"), ("12,24,36",)),
        ("4xa4000-128gb", Asked(gpus="all", layer_split="24,36"), ("12,24,36",)),
        # NVIDIA and AMD cards cannot share a model.
        ("5070ti-and-9070xt-64gb", Asked(gpus=(0, 1)), ()),
        # Scaling cannot be refused beyond the trained length, nor given inside it.
        ("rtx4090-128gb", Asked(context=393_216, rope_scaling="none"), ("262144",)),
        ("rtx4090-128gb", Asked(context=32_768, rope_scale=2.0), ()),
    ],
)
def test_an_answer_that_cannot_work(name: str, asked: Asked, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        recommended(name, "IQ3_S", asked)
    assert caught.value.hint
    said = f"{caught.value} {caught.value.hint}".replace(",", "").replace(" ", "")
    for word in words:
        assert word.replace(",", "") in said


@pytest.mark.parametrize(
    ("name", "family", "key"),
    [
        # No size of Flash-Next reaches its line: Qwen3.6. 15.6, 16.0, 23.4 < 15.2 + 10: UD-IQ3_S.
        ("rtx5070-16gb", None, "Qwen3.6-UD-IQ3_S"),
        ("rtx3060-24gb", None, "Qwen3.6-UD-IQ3_S"),
        ("container-16gb", None, "Qwen3.6-UD-IQ3_S"),
        # A card < 5.5.
        ("laptop-3050-16gb", None, "Qwen3.6-UD-IQ3_S"),
        # 31.3 >= 25.2, where the family is asked for; without one, the first family's first size.
        ("rtx4090-32gb", "qwen36", "Qwen3.6-UD-IQ4_XS"),
        ("rtx3060-24gb", "qwen36", "Qwen3.6-UD-IQ3_S"),
        ("rtx4090-32gb", None, "Q2_0"),
        ("2x3090-32gb", None, "Q2_0"),
        # 47.0 < 60: the first size. From 60 on IQ3_XXS.
        ("2x5060ti16-48gb", None, "Q2_0"),
        ("hybrid-4070tis-64gb", None, "IQ3_XXS"),
        ("rtx5090-64gb", None, "IQ3_XXS"),
        ("rtx4090-128gb", None, "IQ3_XXS"),
        # First sizes of the other families; Coder and Unsloth have no IQ3_XXS.
        ("rtx4080-32gb", "swift", "IQ2_XS"),
        ("rtx5090-64gb", "swift", "IQ3_XXS"),
        ("rtx5090-64gb", "coder", "IQ1_M"),
        ("rtx5090-64gb", "unsloth", "UD-IQ4_XS"),
    ],
)
def test_the_size_by_memory(name: str, family: str | None, key: str) -> None:
    hardware = machine(name)
    cards = tuple(gpu.vram_gib for gpu in hardware.gpus)
    row, reason = recommend_row(catalogue(), hardware.ram_gib, cards, family)
    assert row.key == key
    assert any(character.isdigit() for character in reason)


def test_the_size_for_unified_memory() -> None:
    # Strix Halo: 125.0 GiB of RAM + 0.5 given to graphics >= 80: Unsloth's, if no family is named.
    hardware = machine("strix-halo-128gb")
    own = hardware.gpus[0].vram_gib
    row, _ = recommend_row(catalogue(), hardware.ram_gib, (own,), carve_out_gib=own)
    assert row.key == "UD-IQ4_XS"
    row, _ = recommend_row(catalogue(), hardware.ram_gib, (own,), "qwen", carve_out_gib=own)
    assert row.key == "IQ3_XXS"


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        # 8 fast, 16 slow: 8 - 1 + 16 // 2 = 15.
        ("hybrid-4070tis-64gb", 15),
        # Not more slow than fast cores: 4 and 4, 10 and 10. No hybrid at all.
        ("laptop-3050-16gb", None),
        ("gb10-128gb", None),
        ("development", None),
        ("two-sockets-t4-384gb", None),
    ],
)
def test_workers(name: str, workers: int | None) -> None:
    found = pool_workers(machine(name).cpu)
    assert (None if found is None else found[0]) == workers


def test_two_sockets_get_a_tip() -> None:
    # 40 cores in 2 sockets: 20 - 1 = 19.
    assert "--pool-workers 19" in str(socket_tip(machine("two-sockets-t4-384gb").cpu))
    assert socket_tip(machine("no-gpu-256gb").cpu) is None


@pytest.mark.parametrize("name", machine_names())
def test_a_recording_reads_back_as_it_is(name: str) -> None:
    hardware = machine(name)
    assert type(hardware).from_json(hardware.to_json()) == hardware
    for key in ("IQ3_S", "Qwen3.6-UD-IQ3_S"):
        assert recommended(name, key, NOTHING).reasons
