"""Flag over config file over environment over profile over default: a row for each layer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.capabilities import EVERYTHING, THIS_VERSION
from engine.config import RunConfig
from engine.errors import ConfigError
from engine.flags import parse_engine_args
from engine.resolve import make_plan
from setup.config.file import read_config
from setup.models.catalogue import find_row
from setup.models.catalogue_info import info_of
from strata_cli.precedence import Layered, layered, said_by
from tests.machines import machine
from tests.setup.four_cards import FOUR

INFO = info_of(find_row("IQ3_S", "qwen"))
GPUS: dict[str, Any] = {"backend": "hip", "gpu": [0, 1, 2, 3]}
MACHINE = machine(free_gb=1000, gpus=FOUR)


def _layered(
    folder: Path,
    *,
    flags: str = "",
    config: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    profile: bool = False,
) -> Layered:
    """`profile`: an engine that can do what the profile of four R9700 cards needs."""
    path = folder / "strata-x.json"
    path.write_text(json.dumps({**GPUS, **(config or {})}))
    return layered(
        parse_engine_args(flags.split()),
        read_config(path),
        INFO,
        MACHINE,
        environment or {},
        EVERYTHING if profile else THIS_VERSION,
    )


def _seen(found: Layered) -> dict[str, Any]:
    """What decides: the plan's settings, the layer split, and a switch of the engine's process."""
    config = make_plan(replace(found.run, device="cpu"), INFO, MACHINE).config
    return {
        "parallel": config.slots,
        "kv": config.kv,
        "max_context": config.max_context,
        "prefill": config.prefill,
        "layer_split": dict(found.run.unused).get("--layer-split"),
        "QSA_SLOTS": found.values.get("env", {}).get("STRATA_QSA_SLOTS"),
    }


FLAG: dict[str, Any] = {
    "flags": "--slots 2 --kv f32 --max-context 8192 --layer-split 10,20,30 --prefill 64"
}
CONFIG: dict[str, Any] = {
    "config": {
        "parallel": 3,
        "layer_split": "11,22,33",
        "args": ["--kv", "fp16", "--max-context", "4096", "--prefill", "32"],
        "env": {"STRATA_QSA_SLOTS": "0"},
    }
}
IN_ARGS: dict[str, Any] = {
    "config": {
        **CONFIG["config"],
        "args": [*CONFIG["config"]["args"], "--batch", "5", "--layer-split=9,18,27"],
    }
}
PROFILE = {"profile": True}


@pytest.mark.parametrize(
    ("setting", "layers", "expected"),
    [
        ("parallel", [FLAG, CONFIG, PROFILE], 2),
        ("parallel", [IN_ARGS, PROFILE], 5),
        ("parallel", [CONFIG, PROFILE], 3),
        ("parallel", [PROFILE], 32),
        ("parallel", [], 4),
        ("kv", [FLAG, CONFIG], "f32"),
        ("kv", [CONFIG], "fp16"),
        ("kv", [PROFILE], "int8"),
        ("kv", [], "int8"),
        ("max_context", [FLAG, CONFIG], 8192),
        ("max_context", [CONFIG], 4096),
        ("max_context", [], 32_768),
        ("prefill", [FLAG, CONFIG, PROFILE], 64),
        ("prefill", [CONFIG, PROFILE], 32),
        ("prefill", [PROFILE], 2048),
        ("prefill", [], 256),
        ("layer_split", [FLAG, IN_ARGS, PROFILE], "10,20,30"),
        ("layer_split", [IN_ARGS, PROFILE], "9,18,27"),
        ("layer_split", [CONFIG, PROFILE], "11,22,33"),
        ("layer_split", [PROFILE], "13,26,39"),
        ("layer_split", [], None),
        ("QSA_SLOTS", [CONFIG, PROFILE], "0"),
        ("QSA_SLOTS", [PROFILE], "1"),
        ("QSA_SLOTS", [], None),
        # Of the environment the engine's process has it already: nothing goes over it.
        ("QSA_SLOTS", [{"environment": {"STRATA_QSA_SLOTS": "0"}}, PROFILE], None),
        ("QSA_SLOTS", [CONFIG, {"environment": {"STRATA_QSA_SLOTS": "1"}}, PROFILE], "0"),
    ],
)
def test_the_first_that_says_something_wins(
    tmp_path: Path, setting: str, layers: list[dict[str, Any]], expected: object
) -> None:
    said = {name: value for layer in layers for name, value in layer.items()}
    assert _seen(_layered(tmp_path, **said))[setting] == expected


def test_what_a_profile_fills_in_and_leaves_is_told(tmp_path: Path) -> None:
    found = _layered(tmp_path, flags="--slots 2", profile=True)
    assert found.notes[0].startswith("profile four-card-r9700 sets layer_split 13,26,39")
    assert any("parallel" in note and "asked by a flag" in note for note in found.notes[1:])


@pytest.mark.parametrize(
    "said",
    [
        {"config": {"four_card_profile": False}},
        {"config": {"env": {"STRATA_FOUR_CARD_PROFILE": "0"}}},
        {"environment": {"STRATA_FOUR_CARD_PROFILE": "0"}},
    ],
)
def test_opt_outs(tmp_path: Path, said: dict[str, Any]) -> None:
    found = _layered(tmp_path, **said, profile=True)
    assert _seen(found)["parallel"] == 4
    assert "is not used" in found.notes[0]


def test_this_version_says_why_the_profile_is_not_used(tmp_path: Path) -> None:
    assert _layered(tmp_path).notes == (
        "profile four-card-r9700 is not used: this version cannot compute on AMD cards",
    )


@pytest.mark.parametrize(
    ("config", "used"),
    [
        ({}, True),
        ({"gpu": [3, 1, 0, 2]}, True),
        ({"gpu": [0, 1, 2]}, False),
        ({"gpu": 0}, False),
        ({"gpu": [0, 1, 2, 9]}, False),
        ({"backend": "cuda"}, False),
        ({"backend": "cpu"}, False),
    ],
)
def test_the_profile_is_for_the_cards_that_the_config_names(
    tmp_path: Path, config: dict[str, Any], used: bool
) -> None:
    assert (_seen(_layered(tmp_path, config=config, profile=True))["parallel"] == 32) == used


def test_without_a_config_the_machine_alone_decides() -> None:
    found = layered(RunConfig(), None, INFO, MACHINE, {}, EVERYTHING)
    assert found.values["parallel"] == found.run.slots == 32
    assert layered(RunConfig(device="cpu"), None, INFO, MACHINE, {}, EVERYTHING).values == {}
    assert layered(RunConfig(), None, INFO, machine(), {}, EVERYTHING).values == {}


@pytest.mark.parametrize(("device", "used"), [("cpu", False), ("cuda:0", False), ("auto", True)])
def test_a_flag_may_take_the_model_off_the_cards(tmp_path: Path, device: str, used: bool) -> None:
    found = _layered(tmp_path, flags=f"--device {device}", profile=True)
    assert (_seen(found)["parallel"] == 32) == used


@pytest.mark.parametrize(
    ("config", "flags", "part"),
    [
        ({"layer_split": "24,16,12"}, "", '"24,16,12"'),
        ({"layer_split": [24, 36]}, "", "2 numbers for 4 GPUs"),
        ({"layer_split": "1,20,30"}, "", "at least 2 layers"),
        ({}, "--layer-split 24", "1 number for 4 GPUs"),
        ({"args": ["--layer-split", "a"]}, "", '"a"'),
        ({"layer_split": "13,26,48"}, "", "48 layers"),
    ],
)
def test_a_layer_split_is_checked_against_cards_and_layers(
    tmp_path: Path, config: dict[str, Any], flags: str, part: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        _layered(tmp_path, config=config, flags=flags)
    assert part in caught.value.message
    assert "12,24,36" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("value", [None, "", "auto", "AUTO"])
def test_auto_is_every_word_for_it(tmp_path: Path, value: str | None) -> None:
    expected = None if value is None else "auto"
    assert _seen(_layered(tmp_path, config={"layer_split": value}))["layer_split"] == expected


def test_with_one_card_the_split_is_not_looked_at(tmp_path: Path) -> None:
    config = {"gpu": 0, "layer_split": "99"}
    assert _seen(_layered(tmp_path, config=config))["layer_split"] is None


def test_a_bad_switch_of_the_environment_is_named_unless_the_config_sets_it(
    tmp_path: Path,
) -> None:
    bad = {"STRATA_TRACE": "yes"}
    with pytest.raises(ConfigError, match="STRATA_TRACE is 'yes', allowed is 0 or 1"):
        _layered(tmp_path, environment=bad)
    _layered(tmp_path, environment=bad, config={"env": {"STRATA_TRACE": "1"}})


def test_what_flags_said_is_known_by_every_name() -> None:
    flags = parse_engine_args(["--slots", "2", "--prefill", "8", "--layer-split", "3"])
    assert said_by(flags) == {"--batch", "--slots", "parallel", "--prefill", "--layer-split"}
    assert said_by(RunConfig()) == frozenset()
