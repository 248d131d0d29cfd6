"""`strata run`: the plan, what wins over what, one answer, and what the server is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import engine
from engine.config import RunConfig
from engine.flags import parse_engine_args
from strata_cli.chosen import choose, engine_flags
from strata_cli.console import Console
from strata_cli.server_options import server_options
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


def test_what_the_server_is_told(tmp_path: Path) -> None:
    path = _config(
        tmp_path,
        host="0.0.0.0",
        port=1234,
        api_key="secret",
        aliases=["gpt"],
        sampling={"temperature": 0.7},
        env={"STRATA_X": "1"},
        log="engine.log",
        engine_silence_s=7,
        parallel=2,
    )
    chosen = choose(path, RunConfig(), Console())
    options = server_options(chosen, sys.executable, None, None, None, None)
    assert (options.host, options.port, options.api_keys) == ("0.0.0.0", 1234, ("secret",))
    assert (options.model_name, options.aliases) == ("q35moe-a-iq3s", ("gpt",))
    assert options.sampling.temperature == 0.7
    assert options.engine_env is not None
    assert options.engine_env["STRATA_X"] == "1"
    assert options.log == path.parent / "engine.log"
    assert options.engine_silence_s == 7
    assert options.engine[:4] == (sys.executable, "-m", "engine", "--serve")
    assert parse_engine_args(options.engine[4:]).slots == 2
    assert options.decisions[0]["setting"] == "model"
    over = server_options(chosen, sys.executable, "127.0.0.1", 0, "other", Path("x.log"))
    assert (over.host, over.port, over.api_keys) == ("127.0.0.1", 0, ("other",))
    assert over.log == Path("x.log")


def test_a_bad_sampling_key_is_named(tmp_path: Path) -> None:
    chosen = choose(_config(tmp_path, sampling={"temperature": 9}), RunConfig(), Console())
    with pytest.raises(engine.errors.ConfigError, match="sampling"):
        server_options(chosen, sys.executable, None, None, None, None)


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
