"""A secret is never shown, whatever part of a config it stands in and however damaged that is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ConfigError
from setup.config.diff import config_diff
from setup.config.file import read_config
from setup.config.json_faults import find_fault
from setup.config.merge import merge
from setup.config.secrets import HIDDEN, is_secret, shown_config

SECRET = "sk-SECRET"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("api_key", True),
        ("mcp_servers", True),
        ("HF_TOKEN", True),
        ("--api-key", True),
        ("apiKey", True),
        ("accessToken", True),
        ("Authorization", True),
        ("db_password", True),
        # These count tokens, or only sound alike.
        ("max_tokens", False),
        ("reasoning_budget_tokens", False),
        ("fit_max_tokens", False),
        ("monkey", False),
        ("tokenizer", False),
        ("--kv", False),
        ("", False),
    ],
)
def test_secrets_are_known_by_their_names(name: str, secret: bool) -> None:
    assert is_secret(name) == secret


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ({"api_key": SECRET, "port": 1}, {"api_key": HIDDEN, "port": 1}),
        ({"env": {"HF_TOKEN": SECRET, "A": "1"}}, {"env": {"HF_TOKEN": HIDDEN, "A": "1"}}),
        ({"mcp_servers": {"a": {"url": SECRET}}}, {"mcp_servers": HIDDEN}),
        ({"mine": [{"token": SECRET, "n": 2}]}, {"mine": [{"token": HIDDEN, "n": 2}]}),
        (
            {"args": ["--api-key", SECRET, "--kv", "int8"]},
            {"args": ["--api-key", HIDDEN, "--kv", "int8"]},
        ),
        ({"args": [f"--api-key={SECRET}", "x"]}, {"args": [f"--api-key={HIDDEN}", HIDDEN]}),
        ({"args": f"--api-key {SECRET} --kv int8"}, {"args": f"--api-key {HIDDEN} --kv int8"}),
    ],
)
def test_a_config_is_shown_without_them(config: dict[str, Any], shown: dict[str, Any]) -> None:
    assert shown_config(config) == shown


def test_notes_and_the_diff_hide_what_stands_behind_a_flag() -> None:
    old = {"args": ["--api-key", SECRET, f"--hf-token={SECRET}", "--kv", "fp16"]}
    new = {"model": "m.gguf", "args": ["--kv", "int8"]}
    merged = merge(old, new, Path("/nowhere"))
    assert SECRET not in str((merged.notes, config_diff(old, merged.config)))
    assert "--api-key" in str(merged.notes)


@pytest.mark.parametrize(
    "text",
    [
        '{"api_key":sk-SECRET}',
        '{"api_key": "a" sk-SECRET}',
        '{"api_key": "a", "sk-SECRET"}',
        '{"api_key": "a", sk-SECRET}',
        '{"api_key": "a", "sk-SECRET", "sk-SECRET"}',
        '{"api_key" sk-SECRET}',
        '{"api_key" = sk-SECRET}',
        "{\"api_key\": 'sk-SECRET'}",
        '{"api_key": "sk-SECRET}',
        '{"api_key": ["x", sk-SECRET]}',
        '{"api_key": {"x": sk-SECRET}}',
        '{"api_key": {"x": 1} sk-SECRET}',
        '{"api_key": "x"} sk-SECRET',
        '{"api_key": // sk-SECRET\n 1}',
        '{"mcp_servers": {"a": {"b": [1, sk-SECRET]}}}',
        '{"env": {"HF_TOKEN": sk-SECRET}}',
        '{"args": ["--api-key", sk-SECRET]}',
        '{"args": ["--api-key", "a" sk-SECRET]}',
        '{"args": ["--api-key", "a", "--api-key" "sk-SECRET"]}',
        '{"api_key": 12SECRET}',
        '{"api_key": SECRET}',
    ],
)
def test_a_damaged_config_does_not_show_them(text: str) -> None:
    fault = find_fault(text)
    assert fault is not None
    assert "SECRET" not in fault.message + fault.hint


def test_a_known_key_behind_a_secret_is_told() -> None:
    fault = find_fault('{"api_key": "a", port: 1}')
    assert fault is not None
    assert fault.message == "the key port has no quotes"


@pytest.mark.parametrize(
    "value",
    [
        {"env": {"HF_TOKEN": SECRET, "A": 1}},
        {"args": f"--api-key {SECRET}"},
        {"args": ["--api-key", SECRET]},
        {"args": [f"--api-key={SECRET}"]},
        {"api_key": [SECRET]},
        [{"api_key": SECRET}],
    ],
)
def test_errors_do_not_show_them(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "strata-a.json"
    path.write_text(json.dumps(value))
    with pytest.raises(ConfigError) as raised:
        read_config(path)
    assert SECRET not in raised.value.message + raised.value.hint


def test_very_many_kept_keys_are_counted() -> None:
    old = {f"mine{number}": number for number in range(1000)}
    (sentence,) = merge(old, {"model": "m.gguf"}, Path("/nowhere")).kept
    assert sentence.startswith("kept as they are: mine0, mine1, ")
    assert sentence.endswith("mine19, 980 more")
