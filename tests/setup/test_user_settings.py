"""What a calibration found is kept for the machine it was measured on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import ConfigError
from setup.user_settings import (
    Calibration,
    Gained,
    hardware_key,
    load_calibration,
    save_calibration,
    settings_path,
)
from tests.machines import CARD, machine

FOUND = Calibration((Gained("spec", 3, 1.25), Gained("spec_min_p", 0.7, 1.04)), "2026-11-30")


def test_what_is_saved_is_loaded_for_its_key_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "settings.json"
    save_calibration(path, "a", FOUND)
    assert load_calibration(path, "a") == FOUND
    assert load_calibration(path, "b") is None


def test_other_entries_survive(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"data_dir": "/models", "calibration": {}}))
    save_calibration(path, "a", FOUND)
    save_calibration(path, "b", Calibration((), "2026-12-01"))
    assert json.loads(path.read_text())["data_dir"] == "/models"
    assert load_calibration(path, "a") == FOUND
    assert load_calibration(path, "b") == Calibration((), "2026-12-01")


def test_flags_and_words() -> None:
    assert FOUND.gained[0].args == ("--spec", "3")
    assert FOUND.gained[1].args == ("--spec-min-p", "0.7")
    assert FOUND.gained[0].told == "--spec 3 (+25%)"


@pytest.mark.parametrize(
    "calibration",
    [
        [],
        {"a": {}},
        {"a": {"settings": {"spec": 3}, "date": "x"}},
        {"a": {"settings": {"spec": {"value": "many", "gain": 1}}, "date": "x"}},
        {"a": {"settings": {"slots": {"value": 3, "gain": 1}}, "date": "x"}},
    ],
)
def test_a_damaged_file_names_itself_and_what_to_do(tmp_path: Path, calibration: object) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"calibration": calibration}))
    with pytest.raises(ConfigError, match=r"settings\.json") as caught:
        load_calibration(path, "a")
    assert "remove" in caught.value.hint


def test_another_card_memory_model_or_context_is_another_machine() -> None:
    here = machine(gpus=(CARD,))
    keys = {
        hardware_key(here, "iq3_s", 32_768),
        hardware_key(here, "iq3_s", 65_536),
        hardware_key(here, "q2_0", 32_768),
        hardware_key(machine(), "iq3_s", 32_768),
        hardware_key(replace(here, ram_bytes=128 << 30), "iq3_s", 32_768),
    }
    assert len(keys) == 5
    assert hardware_key(here, "iq3_s", 32_768).startswith("NVIDIA GeForce RTX 5070|12|A CPU|60|")


def test_where_the_file_lies() -> None:
    home = Path("/home/a")
    assert settings_path({}, home) == home / ".config/strata/settings.json"
    assert settings_path({"XDG_CONFIG_HOME": "/x"}, home) == Path("/x/strata/settings.json")
