"""`strata run`: the plan, what wins over what, one answer, and what the server is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.config import RunConfig
from strata_cli.chosen import choose, engine_flags
from strata_cli.console import Console
from tests.machines import SMALL_MODEL
from tests.strata_cli.commands import strata

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _config(folder: Path, **values: object) -> Path:
    path = folder / "strata-small.json"
    path.write_text(json.dumps({"model": str(SMALL_MODEL), **values}))
    return path


def test_plan_shows_decisions_and_memory(capsys: Capture, tmp_path: Path) -> None:
    _config(tmp_path, parallel=2, args=["--pcie-frac", "0.5"])
    ran = strata(capsys, "run", "--plan")
    assert ran.code == 0
    for part in ("slots", "as asked", "--pcie-frac", "recurrent state, 2 slots", "available"):
        assert part in ran.out
    document = strata(capsys, "run", "--plan", "--json").document
    assert document["config"]["slots"] == 2
    assert {"setting", "asked", "value", "reason"} == set(document["decisions"][0])
    assert document["memory"]["fits"]


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    _config(tmp_path, parallel=2, args=["--max-context", "1024", "--spec-min-p", "0.25"])
    flags = engine_flags(slots=3, engine_args="--slots 9 --prefill 32")
    config = choose(None, flags, Console()).plan.config
    assert (config.slots, config.prefill) == (3, 32)
    assert (config.max_context, config.spec_min_p) == (1024, 0.25)
    assert config.kv == "int8"


def test_a_model_flag_alone_needs_no_config(tmp_path: Path) -> None:
    _config(tmp_path, parallel=2)
    chosen = choose(None, RunConfig(model=SMALL_MODEL), Console())
    assert chosen.config_path is None
    assert chosen.plan.config.slots == 4


def test_unknown_keys_of_the_file_are_warned_about(capsys: Capture, tmp_path: Path) -> None:
    _config(tmp_path, paralel=2)
    ran = strata(capsys, "run", "--plan", "-q")
    assert "warning: config key 'paralel' is not known, did you mean parallel?" in ran.err


def test_prompt_answers_once_on_stdout(capsys: Capture) -> None:
    words = ["run", "--model", str(SMALL_MODEL), "--prompt", "Hello", "--max-tokens", "6"]
    ran = strata(capsys, *words)
    assert ran.code == 0
    document = strata(capsys, *words, "--json").document
    assert document["text"] + "\n" == ran.out
    assert 1 <= document["completion_tokens"] <= 6
    assert document["finish"] in ("stop", "length")


def test_a_prompt_longer_than_the_context_is_an_error(capsys: Capture) -> None:
    words = ["run", "--model", str(SMALL_MODEL), "--context", "16", "--prompt", "word " * 50]
    ran = strata(capsys, *words)
    assert ran.code == 1
    assert "the context is 16" in ran.err
