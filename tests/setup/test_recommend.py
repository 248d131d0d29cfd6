"""What setup recommends is what the engine then runs, on every machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.hardware import Hardware
from engine.resolve import make_plan
from setup.config_file import read_config
from setup.config_write import write_config
from setup.recommend import Asked, recommend
from tests.machines import CARD, flash_next_sizes, machine


@pytest.mark.parametrize(
    "hardware",
    [
        machine(free_gb=4, cores=1),
        machine(free_gb=12),
        machine(free_gb=20, cores=8, gpus=(CARD,)),
        machine(free_gb=200, cores=64),
    ],
)
@pytest.mark.parametrize(
    "asked",
    [Asked(), Asked(context=8192), Asked(kv="fp16"), Asked(parallel=2, context=262_144)],
)
def test_nothing_recommended_gets_changed(tmp_path: Path, hardware: Hardware, asked: Asked) -> None:
    model = tmp_path / "m.gguf"
    model.touch()
    info = flash_next_sizes(path=model)
    found = recommend(info, hardware, asked, tmp_path)
    write_config(tmp_path / "strata-m.json", found.config)
    run = read_config(tmp_path / "strata-m.json").run
    plan = make_plan(run, info, hardware)
    assert (plan.config.slots, plan.config.max_context) == (found.parallel, found.context)
    assert plan.memory == found.memory
    changed = {decision.setting for decision in plan.decisions if decision.changed}
    # A count that was asked for stays as asked in the file; the engine serves what fits.
    assert changed <= ({"slots"} if asked.parallel else set())


def test_the_model_is_named_so_that_the_folder_may_move(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    inside = tmp_path / "models" / "m.gguf"
    info = flash_next_sizes(path=inside)
    config = recommend(info, machine(), Asked(), tmp_path).config
    assert config["model"] == "models/m.gguf"
    outside = recommend(replace(info, path=Path("/x/m.gguf")), machine(), Asked(), tmp_path).config
    assert outside["model"] == "/x/m.gguf"


def test_only_what_was_asked_is_written() -> None:
    config = recommend(flash_next_sizes(), machine(), Asked(), Path("/")).config
    assert "parallel" not in config
    assert "api_key" not in config
    asked = Asked(parallel=7, api_key="k", host="0.0.0.0", port=0)
    config = recommend(flash_next_sizes(), machine(), asked, Path("/")).config
    assert (config["parallel"], config["api_key"], config["host"], config["port"]) == (
        7,
        "k",
        "0.0.0.0",
        0,
    )
    assert json.loads(json.dumps(config)) == config


def test_every_reason_has_its_number() -> None:
    found = recommend(flash_next_sizes(), machine(), Asked(), Path("/"))
    assert any(str(found.context) in reason for reason in found.reasons)
    assert any(found.kv in reason for reason in found.reasons)
