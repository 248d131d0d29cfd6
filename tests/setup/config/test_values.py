"""Bad values of the config file: refused with key, value, what is allowed and what to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ConfigError
from setup.config.file import read_config
from setup.config.keys import KEYS_BY_NAME


def _write(folder: Path, values: object) -> Path:
    path = folder / "strata-x.json"
    path.write_text(json.dumps(values))
    return path


def _refusal(folder: Path, values: object) -> ConfigError:
    path = _write(folder, values)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert caught.value.hint
    return caught.value


BAD_VALUES: list[tuple[str, Any]] = [
    ("model", ""),
    ("model", "C:\new.gguf"),
    ("model", None),
    ("model_name", 3),
    ("backend", "tpu"),
    ("gpu", []),
    ("gpu", [0, 0]),
    ("gpu", True),
    ("gpu", "0"),
    ("gpu", -1),
    ("layer_split", 1.5),
    ("layer_split", True),
    ("layer_split", [24.5]),
    ("layer_split", {"a": 1}),
    ("args", "--slots 2"),
    ("args", [1]),
    ("args", ["a\0"]),
    ("host", ""),
    ("host", "a\nb"),
    ("port", 65536),
    ("port", -1),
    ("port", None),
    ("port", "8080"),
    ("port", 8080.0),
    ("log", 1),
    ("parallel", "2"),
    ("parallel", True),
    ("parallel", -1),
    ("parallel", 2.0),
    ("env", {"STRATA_X": 1}),
    ("env", {"": "1"}),
    ("env", {"A=B": "1"}),
    ("env", {"A": "\0"}),
    ("env", ["STRATA_TRACE=1"]),
    ("sampling", [0.7]),
    ("aliases", "x"),
    ("aliases", [""]),
    ("aliases", ["a", 1]),
    ("four_card_profile", 1),
    ("fit_max_tokens", "true"),
    ("engine_silence_s", -1),
    ("engine_silence_s", True),
    ("draft_vocab", "de"),
    ("drafter", "eagle"),
    ("gpu_order", "best"),
    ("cuda", True),
    ("cuda", 11),
    ("cuda", 12.0),
    ("vision", []),
    ("mcp", "yes"),
    ("before_load", [1]),
    ("effort_position", "middle"),
    ("reasoning_budget_tokens", -1),
    ("lib_dirs", "/lib"),
    ("exe", ["strata"]),
]


@pytest.mark.parametrize(("key", "value"), BAD_VALUES)
def test_bad_values_name_key_value_and_what_is_allowed(
    tmp_path: Path, key: str, value: object
) -> None:
    refusal = _refusal(tmp_path, {key: value})
    allowed = KEYS_BY_NAME[key].allowed
    assert f": {key} is {json.dumps(value)}, not {allowed}" in refusal.message


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        ({"port": "8080"}, "write 8080 without quotes"),
        ({"lazy_load": "true"}, "write true without quotes"),
        ({"model": "C:\new.gguf"}, "a backslash is written twice"),
        ({"port": "808x"}, "write a whole number from 0 to 65535, or remove port"),
        ({"env": {"STRATA_TRACE": 1}}, '"STRATA_TRACE": "1"'),
    ],
)
def test_hints_say_what_to_write(tmp_path: Path, values: object, hint: str) -> None:
    assert hint in _refusal(tmp_path, values).hint


@pytest.mark.parametrize("key", ["", " ", "a,,b", "a,", 5, ["secret"], "sec\nret"])
def test_a_bad_key_is_refused_and_not_printed(tmp_path: Path, key: object) -> None:
    refusal = _refusal(tmp_path, {"api_key": key})
    assert "api_key is not usable, not a text that is not empty" in refusal.message
    assert "sec" not in refusal.message + refusal.hint
    assert "without a key" in refusal.hint


@pytest.mark.parametrize(
    ("sampling", "part"),
    [
        ({"temperature": 9}, "temperature is 9, not a number from 0 to 2"),
        ({"temperature": "hot"}, 'temperature is "hot", not a number from 0 to 2'),
        ({"temperature": True}, "temperature is true, not"),
        ({"temperature": None}, "temperature is null, not"),
        ({"top_p": 1.01}, "top_p is 1.01, not a number from 0 to 1"),
        ({"top_k": 1.5}, "top_k is 1.5, not a whole number from -1 to 2147483647"),
        ({"min_p": -0.1}, "min_p is -0.1, not a number from 0 to 1"),
        ({"presence_penalty": 3}, "presence_penalty is 3, not a number from -2 to 2"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0, not a number above 0 to 10"),
        ({"seed": "x"}, 'seed is "x", not a whole number'),
    ],
)
def test_sampling_has_the_servers_ranges(
    tmp_path: Path, sampling: dict[str, object], part: str
) -> None:
    assert f"sampling: {part}" in _refusal(tmp_path, {"sampling": sampling}).message


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1.0, "top_p": 0.95, "top_k": 20, "min_p": 0, "presence_penalty": 0},
        {"temperature": 0.7, "top_p": 0.8, "presence_penalty": 1.5, "repetition_penalty": 1},
        {"top_k": -1, "seed": -1},
    ],
)
def test_presets_of_sampling_are_sound(tmp_path: Path, sampling: dict[str, object]) -> None:
    assert read_config(_write(tmp_path, {"sampling": sampling})).warnings == ()


@pytest.mark.parametrize(
    ("env", "part"),
    [
        ({"STRATA_TRACE": "2"}, "env: STRATA_TRACE is '2', allowed is 0 or 1"),
        ({"STRATA_PIPED_MTP": "-1"}, "env: STRATA_PIPED_MTP is '-1', allowed is a whole number"),
    ],
)
def test_switches_are_checked_when_the_file_is_read(
    tmp_path: Path, env: dict[str, str], part: str
) -> None:
    assert part in _refusal(tmp_path, {"env": env}).message
