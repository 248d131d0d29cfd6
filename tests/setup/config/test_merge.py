"""Setup runs again: what is the user's stays, and what is kept, replaced or dropped is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setup.config.args import flag_pairs
from setup.config.diff import config_diff, shown
from setup.config.keys import KEYS_BY_NAME, OWNED
from setup.config.merge import merge
from setup.config.sound import sound_values

HERE = Path("/nowhere")
NEW: dict[str, Any] = {
    "model": "m.gguf",
    "model_name": "m",
    "backend": "cpu",
    "args": ["--max-context", "4096", "--kv", "int8"],
}


def test_setups_keys_are_new_and_the_users_stay() -> None:
    old = {
        "model": "old",
        "gpu": [0, 1],
        "layer_split": "24",
        "parallel": 2,
        "aliases": ["a"],
        "mine": {"x": 1},
        "open_browser": False,
    }
    assert merge(old, NEW, HERE).config == {
        **NEW,
        "parallel": 2,
        "aliases": ["a"],
        "mine": {"x": 1},
        "open_browser": False,
    }


def test_what_the_new_config_says_holds() -> None:
    old = {"parallel": 2, "host": "0.0.0.0", "port": 1, "api_key": "old"}
    new = {**NEW, "parallel": 5, "host": "::1", "port": 2, "api_key": "new"}
    assert merge(old, new, HERE).config == new


def test_address_key_and_log_stay_without_a_flag() -> None:
    old = {"host": "0.0.0.0", "port": 1, "api_key": "secret", "log": "x.log", "parallel": 4}
    merged = merge(old, NEW, HERE)
    assert merged.config == {**NEW, **old}
    assert merged.kept == (
        'host "0.0.0.0" is kept (--host changes it)',
        "port 1 is kept (--port changes it)",
        "api_key is kept (--api-key changes it)",
        "parallel 4 is kept (--parallel changes it)",
        "kept as they are: log",
    )


def test_the_usual_address_needs_no_sentence() -> None:
    old = {"host": "127.0.0.1", "port": 8080}
    assert merge(old, {**NEW, **old}, HERE).notes == ()


def test_everything_that_changes_is_told() -> None:
    old = {
        "model": "old.gguf",
        "layer_split": "24",
        "api_key": "secret",
        "port": "x",
        "env": {"STRATA_RESIDENT_PIN": "0", "STRATA_TRACE": "1"},
        "args": ["--max-context=8192", "--pcie-frac", "0.2", "--resident-experts", "--kv", "int8"],
    }
    merged = merge(old, {**NEW, "api_key": "new"}, HERE)
    assert merged.config["env"] == {"STRATA_TRACE": "1"}
    assert merged.dropped == (
        'the config: port is "x", not a whole number from 0 to 65535 (write a whole number from 0 '
        "to 65535, or remove port): not kept",
        'layer_split "24" of the old config is not kept: setup chooses it anew',
        "env.STRATA_RESIDENT_PIN is not kept: setup writes it",
        "engine flag --pcie-frac 0.2 of the old config is not kept: it has no effect in this "
        "version",
        "engine flag --resident-experts of the old config is not kept: it has no effect in this "
        "version",
    )
    assert merged.replaced == (
        'model "old.gguf" becomes "m.gguf"',
        "api_key becomes (not shown)",
        "engine flag --max-context 8192 becomes --max-context 4096",
    )
    assert merged.notes == (*merged.dropped, *merged.replaced, *merged.kept)
    assert "secret" not in str(merged.notes)


def test_a_value_that_run_refuses_is_not_taken_over() -> None:
    merged = merge({"port": "x"}, {**NEW, "port": "x"}, HERE)
    assert merged.config == NEW
    assert "port" in merged.dropped[0]


def test_entries_that_change_are_told_one_by_one() -> None:
    old = {"sampling": {"top_k": 20, "top_p": 1}, "env": {"HF_TOKEN": "a", "X": "1"}}
    new = {**NEW, "sampling": {"top_k": 40, "top_p": 1}, "env": {"HF_TOKEN": "b", "X": "2"}}
    assert merge(old, new, HERE).notes == (
        "sampling.top_k 20 becomes 40",
        "env.HF_TOKEN (not shown) becomes (not shown)",
        'env.X "1" becomes "2"',
    )


def test_two_names_of_a_flag_are_one() -> None:
    old = {"args": ["--slots", "4"]}
    assert merge(old, {"args": ["--batch", "4"]}, HERE).notes == ()


@pytest.mark.parametrize("args", ["x", None, 3, {"a": 1}])
def test_old_args_that_are_no_list_are_replaced(args: object) -> None:
    assert merge({"args": args}, NEW, HERE).config == NEW


@pytest.mark.parametrize("name", ["profile.bin", "a b/größe.bin"])
def test_learned_routing_stays_while_its_file_is_there(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"")
    old = {
        "args": ["--expert-profile", name, "--expert-profile-save=new.bin", "--pcie-frac", "1"],
    }
    merged = merge(old, NEW, tmp_path)
    words = ["--expert-profile", name, "--expert-profile-save", "new.bin"]
    assert merged.config["args"] == [*NEW["args"], *words]
    assert merged.kept == (
        f"engine flag --expert-profile {name} is kept",
        "engine flag --expert-profile-save new.bin is kept",
    )
    (tmp_path / name).unlink()
    merged = merge(old, NEW, tmp_path)
    assert merged.config["args"] == [*NEW["args"], "--expert-profile-save", "new.bin"]
    assert f"engine flag --expert-profile {name} of the old config is not kept" in merged.dropped[0]
    new = {"args": ["--expert-profile", "other.bin"]}
    assert merge(old, new, tmp_path).config["args"][:2] == ["--expert-profile", "other.bin"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"A": "1", "STRATA_RESIDENT_PIN": "0"}, None, {"A": "1"}),
        ({"STRATA_RESIDENT_PIN": "0"}, None, None),
        ({"A": "1"}, {"B": "2"}, {"A": "1", "B": "2"}),
        ({"A": "1"}, {"A": "2"}, {"A": "2"}),
        ({}, None, None),
        ([1], None, None),
        ({"A": 1}, None, None),
    ],
)
def test_entries_of_env_that_are_not_setups_own_stay(
    old: object, new: dict[str, str] | None, expected: object
) -> None:
    given = NEW if new is None else {**NEW, "env": new}
    assert merge({"env": old}, given, HERE).config.get("env") == expected


def test_the_users_image_encoder_and_extra_keys_stay(tmp_path: Path) -> None:
    encoder = tmp_path / "mine.gguf"
    encoder.write_bytes(b"")
    old = {"vision": {"mmproj": "mine.gguf", "gpu": True, "cuda_device": 1}}
    new = {"vision": {"mmproj": "theirs.gguf", "gpu": False, "max_tokens": 300}}
    expected = {"mmproj": "mine.gguf", "gpu": False, "max_tokens": 300, "cuda_device": 1}
    assert merge(old, new, tmp_path).config["vision"] == expected
    assert merge(old, NEW, tmp_path).config["vision"] == old["vision"]
    encoder.unlink()
    assert merge(old, new, tmp_path).config["vision"]["mmproj"] == "theirs.gguf"


def test_a_diff_has_a_line_for_each_key_flag_and_entry() -> None:
    old = {
        "model": "old.gguf",
        "port": 1,
        "gpu": [0],
        "api_key": "secret",
        "env": {"A": "1", "HF_TOKEN": "hidden", "C": "3"},
        "args": ["--max-context", "8192", "--kv", "int8", "--resident-experts"],
        "mcp_servers": {"x": {"token": "hidden"}},
    }
    new = {
        "model": "größe.gguf",
        "port": 1,
        "api_key": "other secret",
        "args": ["--max-context=4096", "--kv", "int8"],
        "env": {"A": "2", "C": "3"},
        "sampling": {"top_k": 20},
    }
    assert config_diff(old, new) == (
        '- model: "old.gguf"',
        '+ model: "größe.gguf"',
        "- api_key: (not shown)",
        "+ api_key: (not shown)",
        "- args: --max-context 8192",
        "+ args: --max-context 4096",
        '- env.A: "1"',
        '+ env.A: "2"',
        "+ sampling.top_k: 20",
        "- gpu: [0]",
        "- env.HF_TOKEN: (not shown)",
        "- args: --resident-experts",
        "- mcp_servers.x: (not shown)",
    )
    assert "hidden" not in shown("env", old["env"])
    assert config_diff(new, new) == ()
    assert config_diff({}, {"port": 1}) == ("+ port: 1",)


def test_flags_are_cut_into_pairs() -> None:
    args = ["stray", "--kv=int8", "--resident-experts", "--adapt-min-gain", "-1", "--mtp", "a", "b"]
    assert flag_pairs({"args": args}) == (
        ("stray",),
        ("--kv", "int8"),
        ("--resident-experts",),
        ("--adapt-min-gain", "-1"),
        ("--mtp", "a", "b"),
    )


_ATOM = st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=3)
_JSON = (
    _ATOM | st.lists(_ATOM, max_size=2) | st.dictionaries(st.text(max_size=2), _ATOM, max_size=2)
)
_WORD = st.sampled_from(["--kv", "--slots", "--batch=2", "--expert-profile", "x", "1"])
_ARGS = st.lists(_WORD, max_size=5)
_ENV = st.dictionaries(st.sampled_from(["A", "STRATA_RESIDENT_PIN"]), st.text(max_size=2))


@st.composite
def _config(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    config: dict[str, Any] = draw(st.dictionaries(st.sampled_from(names), _JSON, max_size=5))
    if draw(st.booleans()):
        config["args"] = draw(_ARGS)
    if draw(st.booleans()):
        config["env"] = draw(_ENV)
    return config


_OLD = _config([*sorted(KEYS_BY_NAME), "mine", "A key"])
_SETUPS = st.fixed_dictionaries(
    {"model": st.just("m.gguf"), "args": _ARGS},
    optional={"env": _ENV, "parallel": st.integers(0, 9), "port": st.just(8080), "gpu": st.just(0)},
)


@settings(max_examples=150, deadline=None)
@given(old=_OLD, new=_SETUPS)
def test_a_second_merge_changes_nothing(old: dict[str, Any], new: dict[str, Any]) -> None:
    once = merge(old, new, HERE).config
    assert merge(once, new, HERE).config == once
    for name in old:
        if name not in new and name not in OWNED and name != "env":
            key = KEYS_BY_NAME.get(name)
            assert (name in once) == (key is None or key.check(old[name]))
    assert all(once[name] == value for name, value in new.items() if name not in ("args", "env"))
    assert once["args"][: len(new["args"])] == new["args"]
    sound = sound_values(new, "new").values
    assert once.get("env", {}).items() >= sound.get("env", {}).items()


@settings(max_examples=150, deadline=None)
@given(old=_OLD, new=_OLD)
def test_a_diff_has_a_line_for_every_change(old: dict[str, Any], new: dict[str, Any]) -> None:
    lines = config_diff(old, new)
    assert config_diff(old, old) == ()
    assert all(line[:2] in ("- ", "+ ") for line in lines)
    for name in (old.keys() | new.keys()) - {"args"}:
        plain = not any(isinstance(config.get(name), dict) for config in (old, new))
        if plain and old.get(name, ...) != new.get(name, ...):
            assert any(line[2:].startswith(f"{name}: ") for line in lines)
