"""Names, paths and files that nobody would write by accident: one error, no traceback."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from strata_cli.main import run_cli
from tests.strata_cli.commands import strata

Capture = pytest.CaptureFixture[str]
RECORDED = Path(__file__).parents[1] / "setup/machines/2x4090-128gb.json"
SETUP = ("setup", "--probe", str(RECORDED), "--model", "strata-tiny", "--yes")
SECRET = "sk-SECRET"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (("--model", "IQ3_S", "--models-dir", "a\nb"), "--models-dir 'a\\nb'"),
        (("--models-dir", "\x1b[31mX"), "--models-dir '\\x1b[31mX'"),
        (("--models-dir", "x" * 300), "File name too long"),
        (("--models-dir", "loop"), "--models-dir loop: "),
        (("--model", "x" * 300), "xxx"),
        (("--model", "x" * 300 + ".gguf"), "does not exist"),
        (("--model", "~nobody-here/x.gguf"), "does not exist"),
        (("--host", "\udcff"), "--host is '\\udcff', not an address"),
        (("--host", ""), "--host is '', not an address"),
        (("--api-key", f"{SECRET}\n"), "--api-key is not usable"),
    ],
)
def test_names_that_no_config_can_hold(
    capsys: Capture, tmp_path: Path, flags: tuple[str, ...], part: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    ran = strata(capsys, *SETUP, *flags)
    assert ran.code == 1
    assert part in ran.err
    assert SECRET not in ran.err
    assert "\x1b" not in ran.err
    assert not list(tmp_path.glob("strata-*.json"))


@pytest.mark.parametrize("flag", ["--probe", "--save-probe", "--models-dir"])
def test_an_empty_path_is_wrong_usage(capsys: Capture, flag: str) -> None:
    ran = strata(capsys, "setup", flag, "")
    assert ran.code == 2
    assert "the path is empty" in ran.err


@pytest.mark.parametrize("flags", [(), ("--model", "IQ3_S")])
def test_models_may_be_a_link_to_itself(
    capsys: Capture, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    (tmp_path / "models").symlink_to("models")
    assert strata(capsys, *SETUP, *flags).code == 0


@pytest.mark.parametrize("words", [(*SETUP,), ("setup", "--yes"), ("run", "--plan")])
def test_the_current_folder_may_be_gone(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ran = strata(capsys, *words)
    assert ran.code == 1
    assert "the current folder is not there any more" in ran.err


def test_half_a_surrogate_in_a_recording(capsys: Capture, tmp_path: Path) -> None:
    record = json.loads(RECORDED.read_text())
    record["gpus"][0] |= {"name": "X\ud800\x1b[31m", "arch": "8.9\x07"}
    (tmp_path / "su.json").write_text(json.dumps(record))
    ran = strata(
        capsys,
        "setup",
        "--probe",
        "su.json",
        "--model",
        "strata-tiny",
        "--yes",
        "--explain",
        "--json",
    )
    assert ran.code == 0
    assert ran.document["config"]["model_name"] == "tiny"
    (ran.out + ran.err).encode()
    assert not {"\x1b", "\x07"} & set(ran.err)
    assert "X\\ud800\\x1b[31m" in ran.err


def test_a_folder_whose_name_is_no_text(capsys: Capture) -> None:
    ran = strata(capsys, *SETUP, "--models-dir", os.fsdecode(b"\xff"))
    assert ran.code == 0
    assert "\\udcff: does not exist" in ran.err


def test_a_host_of_half_a_surrogate_is_refused_by_run(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "strata-tiny.json").write_text('{"host": "\\ud800"}')
    ran = strata(capsys, "run", "--plan")
    assert ran.code == 1
    assert 'host is "\\ud800", not an address' in ran.err


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda path: path.symlink_to("none"), "is a link that leads nowhere"),
        (lambda path: path.symlink_to(path.name), "is a link that leads nowhere"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: os.mkfifo(path), "is a pipe"),
        (lambda path: path.symlink_to("/dev/null"), "is a device"),
        (lambda path: path.write_bytes(b" " * (1 << 20) + b"{}"), "has more than 1048576 bytes"),
    ],
)
def test_run_names_what_is_no_config(capsys: Capture, tmp_path: Path, make: Any, part: str) -> None:
    make(tmp_path / "strata-tiny.json")
    ran = strata(capsys, "run", "--plan")
    assert ran.code == 0
    assert f"strata-tiny.json: {part}" in ran.err


def test_very_many_unknown_keys_take_no_time(capsys: Capture, tmp_path: Path) -> None:
    config = {f"portkey{number}": number for number in range(40_000)}
    (tmp_path / "strata-tiny.json").write_text(json.dumps({"port": 1, **config}))
    began = time.process_time()
    ran = strata(capsys, "run", "--plan")
    # One walk through the text is a second; a search for the nearest key each was eight.
    assert time.process_time() - began < 5
    # The first 20 are named, the rest counted.
    assert "39980 more config keys are not known" in ran.err
    assert ran.err.count("warning:") == 21


def test_a_recording_has_at_most_64_cards(capsys: Capture, tmp_path: Path) -> None:
    record = json.loads(RECORDED.read_text())
    record["gpus"] *= 1500
    (tmp_path / "many.json").write_text(json.dumps(record))
    ran = strata(capsys, "setup", "--probe", "many.json", "--yes")
    assert ran.code == 1
    assert "gpus has 3000 cards, 64 are the most" in ran.err


@pytest.mark.parametrize("text", [None, "", "[1]", " " * (1 << 20) + "{}"])
def test_what_is_wrong_with_a_recording_is_told_of_recordings(
    capsys: Capture, tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "p.json").write_text(text)
    ran = strata(capsys, "setup", "--probe", "p.json", "--yes")
    assert ran.code == 1
    assert "strata setup --save-probe FILE" in ran.err
    assert "config" not in ran.err


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_a_recording_on_stdout(capsys: Capture, tmp_path: Path, extra: tuple[str, ...]) -> None:
    ran = strata(capsys, "setup", "--probe", str(RECORDED), "--save-probe", "-", *extra)
    assert ran.code == 0
    assert len(ran.document["gpus"]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [("--json",), ("--dry-run",), ("--dry-run", "--json"), ()])
def test_secrets_are_written_and_never_printed(
    capsys: Capture, tmp_path: Path, how: tuple[str, ...]
) -> None:
    path = tmp_path / "strata-tiny.json"
    old = {
        "args": ["--api-key", SECRET],
        "env": {"HF_TOKEN": SECRET},
        "mcp_servers": {"a": {"token": SECRET}},
    }
    path.write_text(json.dumps(old))
    ran = strata(capsys, *SETUP, "--api-key", SECRET, *how)
    assert ran.code == 0
    assert SECRET not in ran.out + ran.err
    if "--dry-run" not in how:
        written = json.loads(path.read_text())
        assert written["api_key"] == SECRET
        assert written["env"] == {"HF_TOKEN": SECRET}
        # The key that is there now is kept, and as little printed.
        ran = strata(capsys, *SETUP, *how)
        assert SECRET not in ran.out + ran.err
        assert json.loads(path.read_text())["api_key"] == SECRET


@pytest.mark.parametrize("command", [("run", "--plan"), SETUP])
def test_a_damaged_config_does_not_show_its_secret(
    capsys: Capture, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "strata-tiny.json").write_text('{"api_key":sk-SECRET}')
    ran = strata(capsys, *command)
    assert ran.code == 1
    assert SECRET not in ran.err


def test_an_error_of_the_system_is_told(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error", "m.gguf")

    monkeypatch.setattr("strata_cli.chosen.choose", fails)
    ran = strata(capsys, "run", "--json")
    assert ran.code == 1
    assert "error: m.gguf: Input/output error" in ran.err
    assert ran.document["error"]["message"] == "m.gguf: Input/output error"


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("strata_cli.chosen.choose", fails)
    with pytest.raises(ZeroDivisionError):
        run_cli(["run"])
