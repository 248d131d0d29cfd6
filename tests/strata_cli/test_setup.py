"""`strata setup` on real files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.machines import CARD, SMALL_MODEL, machine
from tests.strata_cli.commands import strata

Capture = pytest.CaptureFixture[str]
NAME = "strata-q35moe-a-iq3s.json"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_writes_a_config_and_prints_its_name(capsys: Capture, tmp_path: Path) -> None:
    ran = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--yes")
    assert ran.code == 0
    assert ran.out == f"{NAME}\n"
    values = json.loads((tmp_path / NAME).read_text())
    assert values["model"] == str(SMALL_MODEL)
    assert values["args"] == ["--max-context", "4096", "--kv", "int8"]
    assert "max_context 4096" in ran.err
    quiet = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--yes", "-q")
    assert (quiet.out, quiet.err) == (f"{NAME}\n", "")
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_second_run_keeps_the_users_keys(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_text(
        json.dumps({"aliases": ["x"], "args": ["--pcie-frac", "1"], "port": 1, "mine": 1})
    )
    ran = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--yes", "--parallel", "2")
    values = json.loads(path.read_text())
    assert (values["aliases"], values["mine"], values["port"]) == (["x"], 1, 8080)
    assert values["parallel"] == 2
    assert "--pcie-frac of the old config is not kept" in ran.err
    assert json.loads((tmp_path / f"{NAME}.bak").read_text())["port"] == 1


def test_dry_run_prints_and_writes_nothing(capsys: Capture, tmp_path: Path) -> None:
    ran = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--dry-run", "--context", "1024")
    assert ran.code == 0
    assert json.loads(ran.out)["args"][:2] == ["--max-context", "1024"]
    assert list(tmp_path.iterdir()) == []


def test_the_json_document(capsys: Capture, tmp_path: Path) -> None:
    probe = tmp_path / "machine.json"
    probe.write_text(json.dumps(machine(gpus=(CARD,)).to_json()))
    words = ["--probe", "machine.json", "--model", str(SMALL_MODEL), "--yes", "--json", "--dry-run"]
    document = strata(capsys, "setup", *words).document
    assert set(document) >= {"config", "recommendation", "reasons", "notes"}
    assert document["recommendation"]["context"] == 4096
    assert document["recommendation"]["kv"] == "int8"


def test_save_probe_records_a_machine_that_can_be_used(capsys: Capture) -> None:
    saved = strata(capsys, "setup", "--save-probe", "here.json")
    assert (saved.code, saved.out) == (0, "here.json\n")
    words = ["setup", "--probe", "here.json", "--model", str(SMALL_MODEL), "--check"]
    assert strata(capsys, *words).code == 0


def test_check_says_what_does_not_fit(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text(json.dumps(machine(free_gb=0.5).to_json()))
    words = ["setup", "--probe", "small.json", "--model", str(SMALL_MODEL), "--check"]
    ran = strata(capsys, *words)
    assert ran.code == 1
    assert ran.out.endswith("does not fit\n")
    assert strata(capsys, *words, "--json").document["fits"] is False


def test_explain_prints_the_memory_table(capsys: Capture) -> None:
    ran = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--dry-run", "--explain")
    assert "keys and values, 4 slots" in ran.err
