"""Setup runs a second time: what stays, what `--reset` takes back, and what each hint says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from setup.config.values import check_environment
from tests.strata_cli.commands import strata

Capture = pytest.CaptureFixture[str]
NAME = "strata-tiny.json"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.delenv("STRATA_API_KEY", raising=False)


def test_what_was_set_stays_and_reset_takes_it_back(capsys: Capture) -> None:
    strata(capsys, "setup", "--yes")
    fresh = Path(NAME).read_text()
    config = json.loads(fresh)
    config["args"] += ["--prefill", "128"]
    Path(NAME).write_text(json.dumps({**config, "model_name": "office"}))
    again = strata(capsys, "setup", "--yes", "--context", "1024")
    assert f"--prefill 128 stays from {NAME}" in again.err
    assert f'model_name "office" stays from {NAME}' in again.err
    assert "--max-context 1024 stays" not in again.err
    assert f"--max-context 1024 stays from {NAME}" in strata(capsys, "setup", "--yes").err
    strata(capsys, "setup", "--yes", "--reset")
    assert Path(NAME).read_text() == fresh


def test_what_run_refuses_is_told_in_its_words(capsys: Capture) -> None:
    Path(NAME).write_text('{"port": "9000", "args": ["--prefil", "3"], "prot": 1}')
    ran = strata(capsys, "setup", "--yes")
    assert "(write 9000 without quotes): 8080 is written" in ran.err
    assert "'--prefil' is not known (did you mean --prefill?): it is not kept" in ran.err
    assert "config key 'prot' is not known, did you mean port?" in ran.err
    assert json.loads(Path(NAME).read_text())["port"] == 8080


def test_an_open_server_is_a_warning_that_quiet_shows(capsys: Capture) -> None:
    words = ("setup", "--yes", "-q", "--host", "0.0.0.0")
    assert "warning: host 0.0.0.0 without an api_key" in strata(capsys, *words).err
    assert strata(capsys, *words, "--api-key", "k").err == ""


def test_a_model_that_is_not_there_has_a_next_step(capsys: Capture) -> None:
    words = ("--family", "qwen", "--model", "IQ3_S")
    fetch = "strata setup --family qwen --model IQ3_S --download"
    assert fetch in strata(capsys, "setup", "--yes", *words).err
    assert fetch in strata(capsys, "run").err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("setup", "--nope"), "hint: strata setup --help lists its flags"),
        (("run", "--port", "x"), "hint: strata run --help lists its flags"),
        (("setup", "--probe", "nope.json"), "--save-probe"),
    ],
)
def test_hints_lead_on(capsys: Capture, words: tuple[str, ...], hint: str) -> None:
    assert hint in strata(capsys, *words).err


def test_a_config_that_is_no_object_is_to_be_removed(capsys: Capture) -> None:
    Path(NAME).write_text("[]")
    assert "or remove it and write it again" in strata(capsys, "setup", "--yes").err


def test_names_in_env_are_not_guessed_too_far() -> None:
    (key,) = check_environment({"STRATA_API_KEY": "x"}, "c")
    assert "write the key as api_key" in key
    assert check_environment({"STRATA_FOO": "1"}, "c") == (
        "env 'STRATA_FOO' is not a switch of the engine",
    )
