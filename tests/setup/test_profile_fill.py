"""What a profile fills in: only what nobody said. A setting of the person always wins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.capabilities import EVERYTHING, THIS_VERSION, Capabilities
from engine.errors import ConfigError
from setup.profiles import ProfileFill, fill_for, filled, profile_fills
from tests.setup.four_cards import FOUR, SWITCHES, four_card_profile


def _fill(config: Mapping[str, Any]) -> ProfileFill:
    return profile_fills(four_card_profile(), config, {}, ())


def test_what_is_unset_is_filled_in() -> None:
    fill = profile_fills(four_card_profile(), {}, {}, ())
    assert fill.config == {"parallel": 32, "layer_split": "13,26,39"}
    assert fill.args == ("--batch-groups", "4", "--prefill", "2048")
    assert fill.env == dict.fromkeys(SWITCHES, "1")
    assert fill.left == ()
    assert fill.text == (
        "profile four-card-r9700 sets parallel 32, layer_split 13,26,39, --batch-groups 4, "
        "--prefill 2048, STRATA_QSA_SLOTS=1, STRATA_BATCH_SELF_COMMIT=1, STRATA_SLOT_COPY_DIRECT=1"
    )


def _sources(said: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str], set[str]]:
    """A config, an environment and flags that say one setting's values at the given places."""
    config: dict[str, Any] = {}
    environment: dict[str, str] = {}
    asked: set[str] = set()
    for place, value in said.items():
        kind, _, name = place.partition(":")
        match kind:
            case "flag":
                asked.add(name)
            case "key":
                config[name] = json.loads(value)
            case "arg":
                config.setdefault("args", []).extend([name, value])
            case "env":
                config.setdefault("env", {})[name] = value
            case "process":
                environment[name] = value
            case _:
                raise AssertionError(place)
    return config, environment, asked


# The setting, where it is said (flag of the command, key or args or env of the config, environment
# of the process), and who decides: "person" or "profile". The defaults decide nothing here: they
# come after the profile.
PRECEDENCE: list[tuple[str, dict[str, str], str]] = [
    ("parallel", {}, "profile"),
    ("parallel", {"flag:parallel": ""}, "person"),
    ("parallel", {"flag:--parallel": ""}, "person"),
    ("parallel", {"flag:--batch": ""}, "person"),
    ("parallel", {"flag:--slots": ""}, "person"),
    ("parallel", {"key:parallel": "4"}, "person"),
    ("parallel", {"key:parallel": "0"}, "person"),
    ("parallel", {"key:parallel": "32"}, "profile"),  # the same: setup wrote it
    ("parallel", {"key:parallel": "31"}, "person"),
    ("parallel", {"key:parallel": "null"}, "profile"),
    ("parallel", {"arg:--batch": "8"}, "person"),
    ("parallel", {"arg:--slots": "8"}, "person"),
    ("parallel", {"flag:parallel": "", "key:parallel": "4"}, "person"),
    ("parallel", {"key:layer_split": '"12,24,36"'}, "profile"),
    ("layer_split", {}, "profile"),
    ("layer_split", {"flag:layer_split": ""}, "person"),
    ("layer_split", {"flag:--layer-split": ""}, "person"),
    ("layer_split", {"key:layer_split": '"12,24,36"'}, "person"),
    ("layer_split", {"key:layer_split": "[12, 24, 36]"}, "person"),
    ("layer_split", {"key:layer_split": '"13,26,39"'}, "profile"),
    ("layer_split", {"key:layer_split": '"auto"'}, "profile"),
    ("layer_split", {"key:layer_split": '" Auto "'}, "profile"),
    ("layer_split", {"key:layer_split": '""'}, "profile"),
    ("layer_split", {"key:layer_split": "null"}, "profile"),
    ("layer_split", {"arg:--layer-split": "auto"}, "person"),
    ("layer_split", {"arg:--layer-split": "12,24,36"}, "person"),
    ("--prefill", {}, "profile"),
    ("--prefill", {"flag:--prefill": ""}, "person"),
    ("--prefill", {"arg:--prefill": "auto"}, "profile"),
    ("--prefill", {"arg:--prefill": "auto:8192"}, "person"),
    ("--prefill", {"arg:--prefill": "1024"}, "person"),
    ("--prefill", {"arg:--prefill": "2048"}, "profile"),
    ("--batch-groups", {}, "profile"),
    ("--batch-groups", {"flag:--batch-groups": ""}, "person"),
    ("--batch-groups", {"arg:--batch-groups": "2"}, "person"),
    # four groups divide the profile's 32 slots, not any count
    ("--batch-groups", {"key:parallel": "6"}, "person"),
    ("--batch-groups", {"flag:parallel": ""}, "person"),
    *(
        row
        for name in SWITCHES
        for row in (
            (name, {}, "profile"),
            (name, {f"flag:{name}": ""}, "person"),
            (name, {f"env:{name}": "0"}, "person"),
            (name, {f"env:{name}": "1"}, "profile"),
            (name, {f"process:{name}": "1"}, "profile"),
            (name, {f"process:{name}": "0"}, "person"),
            (name, {f"process:{name}": "", f"env:{name}": "0"}, "person"),
            (name, {f"process:{name}": "0", f"env:{name}": ""}, "person"),
            (name, {f"process:{name}": ""}, "profile"),
            (name, {"key:parallel": "4", "key:layer_split": '"12,24,36"'}, "profile"),
        )
    ),
]


@pytest.mark.parametrize(("setting", "said", "winner"), PRECEDENCE)
def test_the_person_always_wins(setting: str, said: dict[str, str], winner: str) -> None:
    profile = four_card_profile()
    config, environment, asked = _sources(said)
    fill = profile_fills(profile, config, environment, asked)
    filled_in = {*fill.config, *fill.env, *fill.args[::2]}
    assert (setting in filled_in) == (winner == "profile")
    everything = {*profile.settings, *profile.args, *profile.env}
    assert len(fill.left) == len(everything - filled_in), "each that stays is told"
    result = filled(config, fill)
    # What stood in the config still stands there, word for word.
    for key, value in config.items():
        if key not in ("args", "env") and value not in (None, "", "auto", " Auto "):
            assert result[key] == value
    assert result.get("args", [])[: len(config.get("args", []))] == config.get("args", [])
    assert {**result.get("env", {}), **config.get("env", {})} == result.get("env", {})


def test_a_filled_config_stays_as_it_is() -> None:
    config = filled({"args": ["--kv", "int8", "--prefill", "auto"], "env": {"A": "b"}}, _fill({}))
    assert config == {
        "parallel": 32,
        "layer_split": "13,26,39",
        "args": ["--kv", "int8", "--prefill", "auto", "--batch-groups", "4", "--prefill", "2048"],
        "env": {"A": "b", **dict.fromkeys(SWITCHES, "1")},
    }
    # Setup writes its keys anew on every run: what it wrote is filled in again.
    assert _fill(config) == _fill({})
    assert filled(config, _fill(config)) == config
    # What the person changed since stays.
    changed = {**config, "parallel": 8}
    assert "parallel" not in _fill(changed).config
    assert "--batch-groups" not in _fill(changed).args
    assert filled(changed, _fill(changed)) == changed


def test_what_stays_is_told() -> None:
    config = {"parallel": 6, "args": ["--prefill=512"]}
    assert profile_fills(
        four_card_profile(), config, {"STRATA_QSA_SLOTS": "0"}, {"layer_split"}
    ).left == (
        "parallel: 6 in the config; profile four-card-r9700 would set 32",
        "layer_split: asked by a flag; profile four-card-r9700 would set 13,26,39",
        "--batch-groups: the engine chooses, because parallel stays; "
        "profile four-card-r9700 would set 4",
        "--prefill: 512 in args; profile four-card-r9700 would set 2048",
        "STRATA_QSA_SLOTS: 0 in the environment; profile four-card-r9700 would set 1",
    )


@pytest.mark.parametrize(
    ("config", "environment", "asked", "reason"),
    [
        ({"four_card_profile": False}, {}, (), "four_card_profile is false"),
        ({}, {"STRATA_FOUR_CARD_PROFILE": "0"}, (), "STRATA_FOUR_CARD_PROFILE=0"),
        ({"env": {"STRATA_FOUR_CARD_PROFILE": "0"}}, {}, (), "STRATA_FOUR_CARD_PROFILE=0"),
        # one of two places is enough
        (
            {"four_card_profile": True, "env": {"STRATA_FOUR_CARD_PROFILE": "1"}},
            {"STRATA_FOUR_CARD_PROFILE": "0"},
            (),
            "STRATA_FOUR_CARD_PROFILE=0",
        ),
        ({"args": ["--peer-device", "1"]}, {}, (), "it does not go with --peer-device"),
        ({"args": ["--peer-device=1"]}, {}, (), "it does not go with --peer-device"),
        ({}, {}, ("--peer-device",), "it does not go with --peer-device"),
    ],
)
def test_opting_out(
    config: dict[str, Any], environment: dict[str, str], asked: tuple[str, ...], reason: str
) -> None:
    fill = profile_fills(four_card_profile(), config, environment, asked)
    assert (fill.config, fill.env, fill.args, fill.text) == ({}, {}, (), "")
    assert fill.left == (f"profile four-card-r9700 is not used: {reason}",)
    assert filled(config, fill) == config


@pytest.mark.parametrize(
    ("config", "environment"),
    [
        ({"four_card_profile": True}, {}),
        ({"four_card_profile": None}, {}),
        ({}, {"STRATA_FOUR_CARD_PROFILE": "1"}),
        ({}, {"STRATA_FOUR_CARD_PROFILE": ""}),
    ],
)
def test_opting_in_changes_nothing(config: dict[str, Any], environment: dict[str, str]) -> None:
    assert profile_fills(four_card_profile(), config, environment, ()) == _fill({})


def test_an_opt_out_of_no_meaning_is_an_error() -> None:
    with pytest.raises(ConfigError, match="STRATA_FOUR_CARD_PROFILE is 'no', allowed is 0 or 1"):
        profile_fills(four_card_profile(), {}, {"STRATA_FOUR_CARD_PROFILE": "no"}, ())


def test_setup_and_run_share_one_way_in() -> None:
    full = fill_for(FOUR, "IQ3_S", {}, {}, (), EVERYTHING)
    assert full == _fill({})
    assert fill_for(FOUR, "Q2_0", {}, {}, (), EVERYTHING) is None
    assert fill_for(FOUR[:1], "IQ3_S", {}, {}, (), EVERYTHING) is None
    without = Capabilities(EVERYTHING.names - {"layer_split"})
    fill = fill_for(FOUR, "IQ3_S", {}, {}, (), without)
    assert fill is not None
    assert (fill.config, fill.env, fill.args) == ({}, {}, ())
    note = "profile four-card-r9700 is not used: this version cannot spread layers over cards"
    assert fill.left == (note,)
    this = fill_for(FOUR, "IQ3_S", {}, {}, (), THIS_VERSION)
    assert this is not None
    assert bool(this.text) == all(THIS_VERSION.has(need) for need in four_card_profile().needs)


@given(
    parallel=st.none() | st.integers(0, 64),
    split=st.sampled_from([None, "auto", "12,24,36", [13, 26, 39]]),
    args=st.lists(
        st.sampled_from(
            [
                ("--prefill", "auto"),
                ("--prefill", "512"),
                ("--batch", "4"),
                ("--batch-groups", "2"),
                ("--kv", "int8"),
                ("--trim-stage-weights",),
            ]
        ),
        max_size=5,
    ),
    env=st.dictionaries(st.sampled_from(SWITCHES), st.sampled_from(["", "0", "1"])),
    environment=st.dictionaries(st.sampled_from(SWITCHES), st.sampled_from(["", "0", "1"])),
)
def test_filling_never_changes_a_word_of_the_person(
    parallel: int | None,
    split: object,
    args: list[tuple[str, ...]],
    env: dict[str, str],
    environment: dict[str, str],
) -> None:
    config: dict[str, Any] = {
        "parallel": parallel,
        "layer_split": split,
        "args": [word for words in args for word in words],
        "env": env,
    }
    result = filled(config, profile_fills(four_card_profile(), config, environment, ()))
    if parallel is not None:
        assert result["parallel"] == parallel
    if split not in (None, "auto"):
        assert result["layer_split"] == split
    assert result["args"][: len(config["args"])] == config["args"]
    added = result["args"][len(config["args"]) :]
    if ("--prefill", "512") in args and args[::-1].index(("--prefill", "512")) == min(
        i for i, words in enumerate(args[::-1]) if words[0] == "--prefill"
    ):
        assert "--prefill" not in added
    if ("--batch-groups", "2") in args:
        assert "--batch-groups" not in added
    for name in SWITCHES:
        if env.get(name):
            assert result["env"][name] == env[name]
        elif environment.get(name) == "0":
            assert result["env"].get(name) == env.get(name)
