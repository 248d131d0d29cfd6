"""What the server is told: flags over the config file over the defaults."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from engine.config import RunConfig
from engine.errors import ConfigError
from engine.flags import parse_engine_args
from engine.server.options import ServerOptions
from strata_cli.chosen import choose
from strata_cli.console import Console
from strata_cli.server_options import server_options
from tests.machines import SMALL_MODEL


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRATA_API_KEY", raising=False)


def _options(folder: Path, flag: str | None = None, **values: object) -> ServerOptions:
    path = folder / "strata-small.json"
    path.write_text(json.dumps({"model": str(SMALL_MODEL), **values}))
    chosen = choose(path, RunConfig(), Console(quiet=True))
    return server_options(chosen, sys.executable, None, None, flag, None)


def test_the_keys_of_the_file(tmp_path: Path) -> None:
    options = _options(
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
    assert (options.host, options.port, options.api_keys) == ("0.0.0.0", 1234, ("secret",))
    assert (options.model_name, options.aliases) == ("q35moe-a-iq3s", ("gpt",))
    assert options.sampling.temperature == 0.7
    assert options.engine_env is not None
    assert options.engine_env["STRATA_X"] == "1"
    assert options.log == tmp_path / "engine.log"
    assert options.engine_silence_s == 7
    assert options.engine[:4] == (sys.executable, "-m", "engine", "--serve")
    assert parse_engine_args(options.engine[4:]).slots == 2
    assert options.decisions[0]["setting"] == "model"


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "strata-small.json"
    values = {"host": "0.0.0.0", "port": 1, "api_key": "secret", "log": "engine.log"}
    path.write_text(json.dumps({"model": str(SMALL_MODEL), **values}))
    chosen = choose(path, RunConfig(), Console(quiet=True))
    over = server_options(chosen, sys.executable, "127.0.0.1", 0, "other", Path("x.log"))
    assert (over.host, over.port, over.api_keys) == ("127.0.0.1", 0, ("other",))
    assert over.log == Path("x.log")


@pytest.mark.parametrize(
    ("flag", "environment", "file", "expected"),
    [
        ("f", "e", "c", ("f",)),
        (None, "e", "c", ("e",)),
        (None, "e", None, ("e",)),
        (None, None, "c, d", ("c, d",)),
        (None, None, None, ()),
    ],
)
def test_where_the_key_comes_from(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flag: str | None,
    environment: str | None,
    file: str | None,
    expected: tuple[str, ...],
) -> None:
    if environment is not None:
        monkeypatch.setenv("STRATA_API_KEY", environment)
    values = {} if file is None else {"api_key": file}
    assert _options(tmp_path, flag, **values).api_keys == expected


@pytest.mark.parametrize(
    ("flag", "environment", "part"),
    [
        ("", None, "--api-key is empty"),
        ("a,,b", None, "--api-key is empty"),
        (None, " ", "STRATA_API_KEY is empty"),
    ],
)
def test_an_empty_key_never_opens_the_server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flag: str | None,
    environment: str | None,
    part: str,
) -> None:
    if environment is not None:
        monkeypatch.setenv("STRATA_API_KEY", environment)
    with pytest.raises(ConfigError, match=part) as caught:
        _options(tmp_path, flag, api_key="c")
    assert "without a key" in caught.value.hint


def test_env_of_the_file_wins_over_the_processs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_TRACE", "1")
    monkeypatch.setenv("STRATA_BATCH_MTP", "1")
    env = _options(tmp_path, env={"STRATA_TRACE": "0"}).engine_env
    assert env is not None
    assert (env["STRATA_TRACE"], env["STRATA_BATCH_MTP"]) == ("0", "1")


def test_the_switches_of_admission_reach_the_server(tmp_path: Path) -> None:
    options = _options(tmp_path)
    assert (options.admit_short_tokens, options.admit_max_wait_s) == (0, 30.0)
    env = {"STRATA_ADMIT_SHORT_FIRST": "256", "STRATA_ADMIT_MAX_WAIT_S": "1.5"}
    options = _options(tmp_path, env=env)
    assert (options.admit_short_tokens, options.admit_max_wait_s) == (256, 1.5)
