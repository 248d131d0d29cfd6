"""Which config a command takes, and what it says when that is not clear."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import RunConfig
from engine.errors import ConfigError
from strata_cli.chosen import choose, only_config
from strata_cli.console import Console
from tests.machines import SMALL_MODEL
from tests.strata_cli.commands import strata

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _config(path: Path, **values: object) -> Path:
    path.write_text(json.dumps({"model": str(SMALL_MODEL), **values}), encoding="utf-8")
    return path


def test_the_only_config_is_taken(tmp_path: Path) -> None:
    assert only_config(tmp_path) is None
    path = _config(tmp_path / "strata-a.json")
    _config(tmp_path / "strata-a.shared-settings.json")
    (tmp_path / "strata-probe.json").write_text('{"gpus": [], "ram_bytes": 1}')
    assert only_config(tmp_path) == path


def test_several_configs_are_a_question(tmp_path: Path) -> None:
    for name in ("strata-b.json", "strata-a.json"):
        _config(tmp_path / name)
    with pytest.raises(ConfigError) as caught:
        only_config(tmp_path)
    assert caught.value.message == "there are 2 configs here: strata-a.json, strata-b.json"
    assert caught.value.hint == "name one of them, as in `strata run strata-a.json`"


def test_a_broken_config_is_told_and_not_passed_over(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "strata-a.json").write_text('{\n "parallel": 2,\n}')
    ran = strata(capsys, "run", "--plan")
    assert ran.code == 1
    assert "strata-a.json: line 2, column 15: a comma stands before the closing }" in ran.err
    assert "hint: remove the comma" in ran.err


@pytest.mark.parametrize(
    ("name", "there", "message", "hint"),
    [
        ("strata-b.json", ["strata-a.json"], "does not exist", "here is strata-a.json"),
        (
            "strata-c.json",
            ["strata-a.json", "strata-b.json"],
            "does not exist",
            "here are strata-a.json, strata-b.json",
        ),
        ("none.json", [], "cannot be read: No such file", "strata setup"),
        ("m.gguf", [], "is a model, not a config", "strata run --model m.gguf"),
    ],
)
def test_a_config_that_is_not_there(
    capsys: Capture, tmp_path: Path, name: str, there: list[str], message: str, hint: str
) -> None:
    for other in there:
        _config(tmp_path / other)
    ran = strata(capsys, "run", name, "--plan")
    assert ran.code == 1
    assert message in ran.err
    assert hint in ran.err


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "."])
def test_what_is_no_file_is_refused_at_once(capsys: Capture, tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = strata(capsys, "run", name, "--plan")
    assert ran.code == 1
    assert "hint: " in ran.err


def test_the_model_counts_from_the_configs_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a folder" / "größe"
    folder.mkdir(parents=True)
    (folder / "m.gguf").symlink_to(SMALL_MODEL)
    path = _config(folder / "strata-x.json", model="m.gguf")
    chosen = choose(path.relative_to(tmp_path), RunConfig(), Console(quiet=True))
    assert chosen.plan.config.model.resolve() == SMALL_MODEL.resolve()


def test_a_bad_switch_in_the_environment_stops_before_the_model_loads(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_TRACE", "yes")
    ran = strata(capsys, "run", str(_config(tmp_path / "strata-x.json")), "--plan")
    assert ran.code == 1
    assert "STRATA_TRACE is 'yes', allowed is 0 or 1" in ran.err


def test_a_model_that_the_machine_cannot_hold_is_refused_before_it_is_loaded() -> None:
    chosen = choose(None, RunConfig(model=SMALL_MODEL), Console())
    chosen.check_room()
    with pytest.raises(ConfigError, match=r"needs \d\.\d GB .* this machine has 1\.0 GB") as caught:
        replace(chosen, machine_bytes=10**9).check_room()
    assert "setup --check" in caught.value.hint
