"""What `strata setup --probe FILE ... --yes --json --dry-run` prints, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.setup.expected.case import K32, MACHINES, Case
from tests.setup.expected.common_cards import COMMON_CARDS
from tests.setup.expected.large_cards import LARGE_CARDS
from tests.setup.expected.several_cards import ALL32, SEVERAL_CARDS
from tests.setup.expected.small_machines import SMALL_MACHINES
from tests.strata_cli.commands import strata

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]
KEYS = ["config", "recommendation", "reasons", "notes"]
RULES = ["parallel", "layer_split", "context", "kv", "kv_resident", "low_ram", "profile"]
CASES = [
    case
    for case in COMMON_CARDS + LARGE_CARDS + SEVERAL_CARDS + SMALL_MACHINES
    if case.model == "IQ3_S" and case.asked in (K32, ALL32) and case.parallel is not ...
]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def words_for(name: str, *more: str) -> list[str]:
    words = ["setup", "--probe", str(MACHINES / f"{name}.json"), "--model", "IQ3_S"]
    return [*words, "--context", "32768", *more, "--yes", "--json"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_recommendation_is_the_rules(case: Case, capsys: Capture, tmp_path: Path) -> None:
    more = ["--gpus", "all"] if case.asked == ALL32 else []
    words = [*words_for(case.machine, *more), "--dry-run"]
    ran = strata(capsys, *words)
    assert ran.code == 0
    assert strata(capsys, *words).out == ran.out
    assert list(tmp_path.iterdir()) == []
    assert list(ran.document)[:4] == KEYS
    assert list(ran.document["recommendation"]) == RULES
    assert ran.document["recommendation"] == {
        "parallel": case.parallel,
        "layer_split": case.split,
        "context": 32_768,
        "kv": case.kv,
        "kv_resident": case.kv_resident,
        "low_ram": case.low_ram,
        "profile": None,
    }


def test_there_are_cases() -> None:
    assert len(CASES) >= 12


def test_four_r9700_name_their_profile(capsys: Capture) -> None:
    document = strata(capsys, *words_for("4xr9700-256gb"), "--dry-run").document
    profile = document["recommendation"].pop("profile")
    # 32 slots, the head counts as four layers: (48 + 4) / 4 = 13.
    assert document["recommendation"] == {
        "parallel": 32,
        "layer_split": "13,26,39",
        "context": 32_768,
        "kv": "int8",
        "kv_resident": None,
        "low_ram": None,
    }
    assert any(profile in sentence for sentence in document["reasons"])


def test_what_is_printed_is_what_gets_written(capsys: Capture, tmp_path: Path) -> None:
    document = strata(capsys, *words_for("rtx5090-64gb"), "--dry-run").document
    assert strata(capsys, *words_for("rtx5090-64gb")).code == 0
    # The default name of a size: strata-{size, lower case}.json.
    written = json.loads((tmp_path / "strata-iq3_s.json").read_text(encoding="utf-8"))
    assert written == document["config"]


def test_the_same_bytes_from_every_process(tmp_path: Path) -> None:
    """Neither the order of sets nor a time of day nor a terminal is in it."""
    printed = [
        subprocess.run(
            [sys.executable, "-m", "strata_cli", *words_for("4xr9700-256gb"), "--dry-run"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "COLUMNS": width},
            check=True,
            capture_output=True,
        ).stdout
        for seed, width in (("1", "40"), ("2", "200"))
    ]
    assert printed[0] == printed[1]
    assert list(json.loads(printed[0]))[:4] == KEYS
