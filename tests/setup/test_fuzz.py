"""Setup on random machines: it answers or says what to do, keeps to each card, and what it writes
is what the engine then runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.capabilities import EVERYTHING, THIS_VERSION, Capabilities
from engine.config import RunConfig
from engine.errors import ConfigError
from engine.hardware import Hardware
from engine.resolve import make_plan
from setup.asked import Asked
from setup.config.file import read_config
from setup.config.write import write_config
from setup.models.catalogue import ModelRow, catalogue
from setup.models.catalogue_info import info_of
from setup.recommend import Recommendation, Subject, recommend
from tests.setup.expected.case import machine, machine_names
from tests.setup.random_machines import answers, machines

NOWHERE = Path("/nowhere")
rows = st.sampled_from(catalogue())
bounded = settings(deadline=None, max_examples=100)


@cache
def subject(row: ModelRow) -> Subject:
    return Subject(row, info_of(row), None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For thousands of configs, none of which has to survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield tmp_path_factory.mktemp("configs")


def found(
    row: ModelRow, hardware: Hardware, asked: Asked, capabilities: Capabilities
) -> Recommendation | None:
    """The recommendation, twice the same; `None` where it is refused, which needs a hint."""
    refused: ConfigError | None = None
    try:
        first = recommend(subject(row), hardware, asked, NOWHERE, capabilities=capabilities)
    except ConfigError as error:
        refused = error
    if refused is not None:
        assert str(refused)
        assert refused.hint
        return None
    again = recommend(subject(row), hardware, asked, NOWHERE, capabilities=capabilities)
    text = json.dumps(first.document())
    assert json.dumps(again.document()) == text
    return first


def keeps_to_the_cards(result: Recommendation, hardware: Hardware) -> None:
    """Each table adds up to its card. What cannot fit holds no expert and is told."""
    cards = result.rule.cards
    assert all(card in hardware.gpus for card in cards)
    assert len({card.index for card in cards}) == len(cards)
    assert len({card.vendor for card in cards}) <= 1
    stages = result.rule.stages
    assert set(stages) == set(cards)
    assert stages == cards or result.rule.layer_split == "auto"
    assert [plan.name for plan in result.cards] == [card.name for card in stages]
    for plan, card in zip(result.cards, stages, strict=True):
        # Where an integrated GPU does not say what it may share, the rules take up to half.
        shared = card.shared_bytes or hardware.ram_bytes // 2 * card.integrated
        assert plan.vram_bytes <= card.vram_bytes + shared
        table = dict(plan.rows())
        assert table.pop("card") == sum(table.values()) == plan.vram_bytes
        assert table.pop("free") == plan.free_bytes
        assert all(bytes_ >= 0 for bytes_ in table.values())
        assert 0 <= plan.resident <= plan.experts
        if plan.free_bytes < 0:
            assert plan.resident == 0
            assert any(card.name in note and "too small" in note for note in result.notes)
    if cards:
        assert (
            sum(last - first for first, last in (plan.layers for plan in result.cards))
            == (result.cards[-1].layers[1])
        )


def writes_what_the_rules_chose(result: Recommendation) -> None:
    """Key by key, for a version that can do all of it."""
    rule, config, args = result.rule, result.config, list(result.config["args"])
    assert args[args.index("--max-context") + 1] == str(rule.context)
    assert args[args.index("--kv") + 1] == rule.kv
    if not rule.cards:
        assert "gpu" not in config
        return
    numbers = [card.index for card in rule.cards]
    assert config["gpu"] == (numbers if len(numbers) > 1 else numbers[0])
    assert config["backend"] == ("cuda" if rule.cards[0].vendor == "nvidia" else "hip")
    assert config.get("layer_split") == rule.layer_split
    for flag, value in (
        ("--kv-resident", rule.kv_resident),
        ("--resident-budget-gib", rule.resident_budget_gib),
    ):
        assert (flag in args) == (value is not None)
        assert value is None or args[args.index(flag) + 1] == str(value)
    for mode in ("resident", "mmap"):
        assert (f"--{mode}-experts" in args) == (rule.low_ram.mode == mode)


def engine_keeps(
    result: Recommendation, run: RunConfig, row: ModelRow, hardware: Hardware, asked: Asked
) -> None:
    """The engine changes nothing that setup chose. What the person asked for is written as asked;
    where the engine cannot keep it, setup has said what it will run."""
    assert run.model is not None
    plan = make_plan(run, replace(subject(row).info, path=run.model), hardware)
    said = {"max_context": asked.context, "slots": asked.parallel}
    for decision in plan.decisions:
        if decision.changed:
            assert said.get(decision.setting) is not None
            told = f"{decision.setting} {decision.value}"
            assert any(told in sentence for sentence in result.reasons)
    assert plan.memory == result.memory


@bounded
@given(row=rows, hardware=machines(), asked=answers)
def test_this_version(folder: Path, row: ModelRow, hardware: Hardware, asked: Asked) -> None:
    result = found(row, hardware, asked, THIS_VERSION)
    if result is None:
        return
    keeps_to_the_cards(result, hardware)
    path = folder / "strata-random.json"
    write_config(path, result.config)
    config = read_config(path)
    # A key of no effect is written only where the person asked for it.
    assert all("open_browser" in warning for warning in config.warnings)
    assert bool(config.warnings) == bool(asked.open_browser)
    engine_keeps(result, config.run, row, hardware, asked)


@bounded
@given(row=rows, hardware=machines(), asked=answers)
def test_a_version_that_can_do_everything(
    folder: Path, row: ModelRow, hardware: Hardware, asked: Asked
) -> None:
    result = found(row, hardware, asked, EVERYTHING)
    if result is None:
        return
    keeps_to_the_cards(result, hardware)
    assert not any(note.startswith("left out") for note in result.notes)
    writes_what_the_rules_chose(result)
    path = folder / "strata-everything.json"
    write_config(path, result.config)
    assert read_config(path).values == result.config


@bounded
@given(row=rows, hardware=machines())
def test_nothing_asked_is_never_refused(row: ModelRow, hardware: Hardware) -> None:
    """Every machine gets an answer, if only what is missing; slots leave room for experts."""
    result = found(row, hardware, Asked(), EVERYTHING)
    assert result is not None
    rule = result.rule
    assert rule.parallel in (0, 2, 3, 4) or rule.profile is not None
    assert rule.context in (8_192, 32_768, 65_536, 131_072)
    assert rule.kv == ("fp16" if rule.context == 8_192 else "int8")
    assert rule.kv_resident in (None, 32_768)
    assert not (hardware.wsl and rule.kv_resident)
    assert (rule.layer_split is None) == (len(rule.cards) < 2)
    assert not (row.one_card and len(rule.cards) > 1)
    if row.budget:
        assert rule.low_ram.mode is None
    # What the rules choose by themselves fits every card that they let share a model.
    assert all(plan.fits for plan in result.cards if plan.vram_bytes >= 7.5 * 2**30)


@pytest.mark.parametrize("name", machine_names())
def test_nothing_recommended_gets_changed(folder: Path, name: str) -> None:
    hardware = machine(name)
    for row in catalogue():
        result = recommend(subject(row), hardware, Asked(), NOWHERE)
        keeps_to_the_cards(result, hardware)
        path = folder / "strata-recorded.json"
        write_config(path, result.config)
        engine_keeps(result, read_config(path).run, row, hardware, Asked())
        able = recommend(subject(row), hardware, Asked(), NOWHERE, capabilities=EVERYTHING)
        assert (able.rule, able.cards) == (result.rule, result.cards)
        writes_what_the_rules_chose(able)
