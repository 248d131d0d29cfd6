"""Whatever the user does wrong: an exit code, one error, a hint, and no traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strata_cli.main import run_cli
from tests.machines import SMALL_MODEL
from tests.strata_cli.commands import strata

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        ("", 2, "Usage"),
        ("bench", 2, "Usage"),
        ("nothing", 2, "nothing"),
        ("run --slotz 1", 2, "--slotz"),
        ("run --port 99999", 2, "65535"),
        ("run --slots", 2, "--slots"),
        ("run --model none.gguf", 1, "none.gguf does not exist"),
        ("run --model .", 1, "is a folder"),
        ("run no.json", 1, "no.json: cannot be read"),
        (f"run --model {SMALL_MODEL} --kv q9", 1, "--kv: 'q9' is not one of int8"),
        (f"run --model {SMALL_MODEL} --slots -1", 1, "whole number from 0"),
        (f"run --model {SMALL_MODEL} --engine-args=--spek", 1, "did you mean --spec?"),
        (f"run --model {SMALL_MODEL} --prompt=", 1, "--prompt is empty"),
        (f"setup --model {SMALL_MODEL}", 1, "--yes takes every recommended answer"),
        ("setup --probe no.json --yes", 1, "no.json: cannot be read"),
        (f"bench decode --model {SMALL_MODEL} --streams 1,x", 1, "--streams: '1,x'"),
        (f"check-exactness --model {SMALL_MODEL} --suite x", 1, "'x' is not a suite"),
        (f"check-exactness --model {SMALL_MODEL} --keys heat=1", 1, "keys are temperature"),
        (f"check-exactness --model {SMALL_MODEL} --keys top_k=x", 1, "top_k: 'x'"),
        (f"check-exactness --model {SMALL_MODEL} --keys top_k=-1", 1, "top_k is -1"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_mistakes(capsys: Capture, words: str, code: int, part: str, as_json: bool) -> None:
    extra = ["--json"] if as_json and words not in ("", "bench") else []
    ran = strata(capsys, *words.split(), *extra)
    assert ran.code == code
    assert part in ran.err
    assert "Traceback" not in ran.err
    if extra:
        assert ran.document["error"]["message"] in ran.err
    else:
        assert ran.out == ""


def test_a_damaged_model_is_an_error(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(20))
    ran = strata(capsys, "run", "--model", "m.gguf")
    assert ran.code == 1
    assert ran.err.startswith("error: ")
    assert "hint: " in ran.err


def test_several_configs_are_a_question(capsys: Capture, tmp_path: Path) -> None:
    for name in ("strata-a.json", "strata-b.json"):
        (tmp_path / name).write_text(json.dumps({"model": str(SMALL_MODEL)}))
    ran = strata(capsys, "run", "--plan")
    assert ran.code == 1
    assert "strata-a.json, strata-b.json" in ran.err
    assert strata(capsys, "run", "strata-a.json", "--plan").code == 0


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.model_info.read_model_info", interrupted)
    assert run_cli(["run", "--model", str(SMALL_MODEL), "--plan"]) == 130


def test_our_own_bugs_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("engine.model_info.read_model_info", broken)
    with pytest.raises(ZeroDivisionError):
        run_cli(["run", "--model", str(SMALL_MODEL), "--plan"])
