"""The table of environment variables."""

import pytest

from engine.errors import ConfigError
from engine.flags import parse_engine_args
from engine.switches import (
    SWITCHES,
    admission,
    read_switches,
    run_of_switches,
    switch_decisions,
    this_environment,
    traces,
    yield_chunks,
)


def test_the_table_is_sorted_and_its_defaults_have_the_type_they_say() -> None:
    names = [switch.name for switch in SWITCHES]
    assert names == sorted(set(names))
    kinds = {"flag": bool, "whole": int, "number": float, "text": str}
    for switch in SWITCHES:
        assert type(switch.default) is kinds[switch.kind]
        assert switch.meaning.endswith(".")


def test_only_what_is_set_is_read() -> None:
    read = read_switches({"STRATA_TRACE": "1", "STRATA_BATCH_MTP": "", "PATH": "/bin"})
    assert {switch.name: value for switch, value in read.items()} == {"TRACE": True}


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("STRATA_TRACE", "yes", "0 or 1"),
        ("STRATA_IQ_MT_MIN", "-1", "a whole number from 0"),
        ("STRATA_IQ_MT_MIN", "1.5", "a whole number from 0"),
        ("STRATA_IQ_MT_MIN", "\u0663", "a whole number from 0"),
        ("STRATA_BATCH_DECODE_SHARE", "half", "a number from 0"),
        ("STRATA_BATCH_DECODE_SHARE", "nan", "a number from 0"),
        ("STRATA_BATCH_DECODE_SHARE", "-0.5", "a number from 0"),
    ],
)
def test_a_bad_value_is_named(variable: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_switches({variable: text})
    assert caught.value.message == f"{variable} is {text!r}, allowed is {allowed}"


def test_good_values_are_converted() -> None:
    set_ = {
        "STRATA_BATCH_DECODE_SHARE": "0.25",
        "STRATA_IQ_MT_MIN": "4",
        "STRATA_TRACE": "0",
        "STRATA_DEFAULTS": "026",
    }
    values = {switch.variable: value for switch, value in read_switches(set_).items()}
    assert values == {
        "STRATA_BATCH_DECODE_SHARE": 0.25,
        "STRATA_DEFAULTS": "026",
        "STRATA_IQ_MT_MIN": 4,
        "STRATA_TRACE": False,
    }


def test_the_plan_says_what_becomes_of_a_switch() -> None:
    some = {"STRATA_QSA_SLOTS": "0", "STRATA_PIPED_MTP": "2", "STRATA_TRACE": "1"}
    found = switch_decisions(some)
    assert [(d.setting, d.asked, d.value, d.changed) for d in found] == [
        ("STRATA_PIPED_MTP", 2, None, True),
        ("STRATA_QSA_SLOTS", 0, 1, True),
        ("STRATA_TRACE", 1, 1, False),
    ]
    assert [decision.reason for decision in found] == [
        "not in this version, nothing follows: Drafts of a slot in pipelined groups.",
        "built in, whatever is said: Block scores and attention of all slots in one launch.",
        "acts: One log line for each admission.",
    ]


def test_what_decides_about_admission() -> None:
    assert (admission({}), yield_chunks({})) == ((0, 30.0), 1)
    short = {"STRATA_ADMIT_SHORT_FIRST": "200"}
    assert admission(short) == (200, 30.0)
    assert admission({**short, "STRATA_ADMIT_MAX_WAIT_S": "0.5"}) == (200, 0.5)
    assert yield_chunks({"STRATA_BATCH_YIELD_CHUNKS": "4"}) == 4
    acting = {"STRATA_BATCH_YIELD_CHUNKS": "4", "STRATA_ADMIT_MAX_WAIT_S": "0", **short}
    assert not any(decision.changed for decision in switch_decisions(acting))


def test_drafts_of_several_slots_may_be_asked_for_by_a_switch() -> None:
    assert run_of_switches({}).batch_mtp is None
    assert run_of_switches({"STRATA_BATCH_MTP": ""}).batch_mtp is None
    assert run_of_switches({"STRATA_BATCH_MTP": "1"}).batch_mtp == "on"
    assert run_of_switches({"STRATA_BATCH_MTP": "0"}).batch_mtp == "off"
    flag = parse_engine_args(["--batch-mtp"])
    assert flag.over(run_of_switches({"STRATA_BATCH_MTP": "0"})).batch_mtp == "on"


def test_tracing_is_off_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not traces({})
    assert not traces({"STRATA_TRACE": "0"})
    monkeypatch.setenv("STRATA_TRACE", "1")
    assert traces(this_environment())
