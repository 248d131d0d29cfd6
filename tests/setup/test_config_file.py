"""The config file: sound ones are read, bad ones named; writing again keeps what is the user's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ConfigError
from setup.config_file import dropped_args, merge, read_config, write_config
from setup.config_keys import CONFIG_KEYS, OWNED


def _write(folder: Path, values: object, prefix: bytes = b"") -> Path:
    path = folder / "strata-x.json"
    path.write_bytes(prefix + json.dumps(values).encode())
    return path


def test_reads_what_setup_writes_with_a_byte_order_mark(tmp_path: Path) -> None:
    values = {
        "model": "m.gguf",
        "parallel": 3,
        "args": ["--max-context", "4096", "--mtp", "d.gguf"],
        "sampling": {"temperature": 0.7, "top_k": 20},
        "host": "127.0.0.1",
        "port": 8080,
    }
    file = read_config(_write(tmp_path, values, b"\xef\xbb\xbf"))
    assert file.values == values
    assert file.run.model == tmp_path / "m.gguf"
    assert file.run.mtp == tmp_path / "d.gguf"
    assert (file.run.slots, file.run.max_context) == (3, 4096)
    assert file.warnings == ()


def test_flags_in_args_win_over_keys(tmp_path: Path) -> None:
    values = {"model": "a.gguf", "parallel": 3, "args": ["--slots", "5", "--model", "b.gguf"]}
    run = read_config(_write(tmp_path, values)).run
    assert (run.slots, run.model) == (5, tmp_path / "b.gguf")


def test_unknown_keys_are_warnings_with_the_nearest(tmp_path: Path) -> None:
    file = read_config(_write(tmp_path, {"paralel": 2, "zzz": 1}))
    assert file.warnings == (
        "config key 'paralel' is not known, did you mean parallel?",
        "config key 'zzz' is not known",
    )
    assert file.values == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("parallel", "2"),
        ("parallel", True),
        ("parallel", -1),
        ("parallel", 2.0),
        ("port", 65536),
        ("port", None),
        ("args", "--slots 2"),
        ("args", [1]),
        ("model", ""),
        ("api_key", " "),
        ("gpu", []),
        ("gpu", [0, 0]),
        ("gpu", True),
        ("env", {"STRATA_X": 1}),
        ("sampling", {"temperature": "hot"}),
        ("backend", "tpu"),
        ("layer_split", 1.5),
        ("four_card_profile", 1),
        ("engine_silence_s", -1),
    ],
)
def test_bad_values_name_key_value_and_what_is_allowed(
    tmp_path: Path, key: str, value: object
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(_write(tmp_path, {key: value}))
    allowed = next(one.allowed for one in CONFIG_KEYS if one.name == key)
    assert f"{key} is {json.dumps(value)}, not {allowed}" in caught.value.message


def test_bad_engine_flags_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"args: --slots: 'x'"):
        read_config(_write(tmp_path, {"args": ["--slots", "x"]}))


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b'{\n "port": 1,\n "x" 2}', "line 3, column 6"),
        (b"[1]", "holds [1], not an object"),
        (b'{"x": "\xff"}', "byte 7 is not UTF-8"),
        (b"", "line 1, column 1"),
        (b"[" * 100_000, "nested too deep"),
    ],
)
def test_what_is_not_json_is_located(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "strata-x.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert part in caught.value.message


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        read_config(tmp_path / "no.json")
    assert "strata setup" in caught.value.hint


def test_writing_keeps_a_backup_only_when_something_changes(tmp_path: Path) -> None:
    path, backup = tmp_path / "strata-x.json", tmp_path / "strata-x.json.bak"
    assert write_config(path, {"port": 1})
    assert not backup.exists()
    assert not write_config(path, {"port": 1})
    assert not backup.exists()
    assert write_config(path, {"port": 2})
    assert json.loads(backup.read_text()) == {"port": 1}
    assert json.loads(path.read_text()) == {"port": 2}
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name, backup.name]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        write_config(tmp_path / "none" / "strata-x.json", {})


def test_merge_replaces_setups_keys_and_keeps_the_users() -> None:
    old = {"model": "old", "api_key": "k", "parallel": 2, "aliases": ["a"], "mine": {"x": 1}}
    new = {"model": "new", "args": ["--kv", "int8"]}
    assert merge(old, new) == {
        "model": "new",
        "args": ["--kv", "int8"],
        "parallel": 2,
        "aliases": ["a"],
        "mine": {"x": 1},
    }
    assert merge(old, {**new, "parallel": 5})["parallel"] == 5


def test_flags_that_get_lost_are_named() -> None:
    old = {"args": ["--kv", "fp16", "--pcie-frac", "0.2"]}
    assert dropped_args(old, {"args": ["--kv", "int8"]}) == ["--pcie-frac"]
    assert dropped_args({"args": "x"}, {"args": []}) == []


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(
    old=st.dictionaries(st.sampled_from([k.name for k in CONFIG_KEYS]) | st.text(), _JSON),
    new=st.dictionaries(st.sampled_from(sorted(OWNED)), _JSON),
)
def test_a_second_merge_changes_nothing(old: dict[str, object], new: dict[str, object]) -> None:
    once = merge(old, new)
    assert merge(once, new) == once
    assert {k: v for k, v in old.items() if k not in OWNED}.items() <= once.items()


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([key.name for key in CONFIG_KEYS]), _JSON, max_size=3))
def test_any_values_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, object]
) -> None:
    path = _write(tmp_path_factory.getbasetemp(), values)
    try:
        file = read_config(path)
    except ConfigError as error:
        assert str(path) in error.message  # noqa: PT017
    else:
        assert file.values == values
