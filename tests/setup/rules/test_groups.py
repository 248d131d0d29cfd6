"""Groups of slots on a split: the published table, and who wins over whom."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError
from setup.rules.groups import GroupPlan, batch_groups, groups_tip, plan_groups

NV_SERIAL = "STRATA_BATCH_GROUPS_NV_SERIAL"
PIPED = "STRATA_PIPED_MTP"


def plan(**changes: Any) -> GroupPlan:
    """Eight slots on four NVIDIA cards, nothing asked."""
    values: dict[str, Any] = {
        "slots": 8,
        "stages": 4,
        "asked": None,
        "batch_mtp": False,
        "adapt_async": False,
        "nvidia": True,
        "environment": {},
    }
    return plan_groups(**{**values, **changes})


@pytest.mark.parametrize(
    ("slots", "stages", "groups"),
    [
        # the largest divisor of the slots that is no more than the stages
        (8, 4, 4),
        (16, 4, 4),
        (32, 4, 4),
        (64, 4, 4),
        (6, 4, 3),
        (5, 4, 1),
        (8, 3, 2),
        (6, 3, 3),
        (8, 2, 2),
        (2, 2, 2),
        (3, 2, 1),
        (2, 4, 2),
        (9, 8, 3),
        (1, 4, 1),
        (8, 1, 1),
        (0, 4, 1),
    ],
)
def test_auto(slots: int, stages: int, groups: int) -> None:
    assert batch_groups(slots, stages) == groups
    if slots > 1 and stages > 1:
        for asked in (None, "auto"):
            assert plan(slots=slots, stages=stages, asked=asked, nvidia=False).groups == groups


@given(st.integers(1, 128), st.integers(1, 16))
def test_auto_is_the_most_that_divides(slots: int, stages: int) -> None:
    groups = batch_groups(slots, stages)
    assert slots % groups == 0
    assert groups <= stages
    assert not any(slots % more == 0 for more in range(groups + 1, min(slots, stages) + 1))


@pytest.mark.parametrize(
    ("asked", "groups", "note"),
    [
        (1, 1, None),
        (2, 2, None),
        (4, 4, None),
        (8, 8, None),  # more groups than cards: as asked
        (3, 2, "--batch-groups 3 does not divide 8 slots: 2 groups instead"),
        (7, 4, "--batch-groups 7 does not divide 8 slots: 4 groups instead"),
        (16, 8, "--batch-groups 16 does not divide 8 slots: 8 groups instead"),
    ],
)
def test_a_number_of_groups(asked: int, groups: int, note: str | None) -> None:
    found = plan(asked=asked)
    assert found.groups == groups
    assert list(found.notes) == ([note] if note else [])


@pytest.mark.parametrize("asked", [0, -1, True, 2.0, "two", "AUTO"])
def test_no_number_of_groups(asked: object) -> None:
    with pytest.raises(ConfigError, match=r"--batch-groups is .*allowed is auto or a whole number"):
        plan(asked=asked)


# -- two NVIDIA cards -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "asked", "groups"),
    [
        ({}, None, 2),  # the default of 0.2.7: pipelined
        ({NV_SERIAL: "1"}, None, 1),
        ({"STRATA_DEFAULTS": "026"}, None, 1),
        ({"STRATA_DEFAULTS": "027"}, None, 2),
        ({"STRATA_DEFAULTS": "026", NV_SERIAL: "0"}, None, 2),  # its own switch wins
        ({"STRATA_DEFAULTS": "027", NV_SERIAL: "1"}, None, 1),
        ({NV_SERIAL: ""}, None, 2),  # set to nothing is not set
        # the flag wins over both
        ({"STRATA_DEFAULTS": "026", NV_SERIAL: "1"}, "auto", 2),
        ({"STRATA_DEFAULTS": "026", NV_SERIAL: "1"}, 4, 4),
        ({NV_SERIAL: "0"}, 1, 1),
    ],
)
def test_two_nvidia_cards(environment: dict[str, str], asked: Any, groups: int) -> None:
    assert plan(stages=2, asked=asked, environment=environment).groups == groups


@pytest.mark.parametrize(("stages", "nvidia"), [(3, True), (4, True), (2, False)])
def test_serial_groups_are_for_two_nvidia_cards_only(stages: int, nvidia: bool) -> None:
    environment = {"STRATA_DEFAULTS": "026", NV_SERIAL: "1"}
    found = plan(slots=12, stages=stages, nvidia=nvidia, environment=environment)
    assert found.groups == stages


def test_the_note_names_the_variable() -> None:
    old = plan(stages=2, environment={"STRATA_DEFAULTS": "026"})
    assert old.notes == (
        "1 group: STRATA_DEFAULTS=026 asks for serial windows on two NVIDIA cards; "
        "--batch-groups auto pipelines",
    )
    own = plan(stages=2, environment={"STRATA_DEFAULTS": "026", NV_SERIAL: "1"})
    assert "STRATA_BATCH_GROUPS_NV_SERIAL=1 asks" in own.notes[0]


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="STRATA_BATCH_GROUPS_NV_SERIAL is 'yes'"):
        plan(environment={NV_SERIAL: "yes"})


# -- drafts and the asynchronous tier --------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "environment", "groups", "batch_mtp"),
    [
        (None, {}, 4, False),  # 0.1.43.1: the pipeline wins
        ("auto", {}, 4, False),
        (2, {}, 2, False),
        (1, {}, 1, True),
        (None, {"STRATA_BATCH_MTP_SERIAL": "1"}, 1, True),
        (None, {"STRATA_BATCH_MTP_SERIAL": "0"}, 4, False),
        ("auto", {"STRATA_BATCH_MTP_SERIAL": "1"}, 4, False),  # the flag wins
        (None, {PIPED: "1"}, 4, True),  # the pipeline and drafts in it
        ("auto", {PIPED: "2"}, 4, True),
        (None, {PIPED: "0"}, 4, False),
        (None, {PIPED: "1", "STRATA_BATCH_SELF_COMMIT": "1"}, 4, False),
        (None, {PIPED: "1", "STRATA_BATCH_MTP_SERIAL": "1"}, 1, True),
    ],
)
def test_batch_mtp(asked: Any, environment: dict[str, str], groups: int, batch_mtp: bool) -> None:
    found = plan(asked=asked, batch_mtp=True, environment=environment)
    assert (found.groups, found.batch_mtp) == (groups, batch_mtp)
    assert any("--batch-mtp is off" in note for note in found.notes) == (not batch_mtp)


def test_serial_mtp_alone_asks_for_nothing() -> None:
    assert plan(environment={"STRATA_BATCH_MTP_SERIAL": "1"}).groups == 4


def test_serial_groups_of_two_cards_keep_drafts() -> None:
    found = plan(stages=2, batch_mtp=True, environment={"STRATA_DEFAULTS": "026"})
    assert (found.groups, found.batch_mtp) == (1, True)


def test_a_count_that_nothing_divides_keeps_drafts_and_the_tier() -> None:
    found = plan(slots=5, asked="auto", batch_mtp=True, adapt_async=True)
    assert (found.groups, found.batch_mtp, found.adapt_async) == (1, True, True)
    assert found.notes == ("1 group: no number up to 4 cards divides 5 slots",)


def test_the_variable_asks_for_drafts_too() -> None:
    assert plan(asked=1, environment={"STRATA_BATCH_MTP": "1"}).batch_mtp


@pytest.mark.parametrize(
    ("asked", "groups", "adapt_async"),
    [(None, 1, True), (1, 1, True), ("auto", 4, False), (2, 2, False)],
)
def test_adapt_async(asked: Any, groups: int, adapt_async: bool) -> None:
    found = plan(asked=asked, adapt_async=True)
    assert (found.groups, found.adapt_async) == (groups, adapt_async)
    assert any("--adapt-async is off" in note for note in found.notes) == (not adapt_async)


def test_adapt_async_without_a_flag_is_told() -> None:
    found = plan(adapt_async=True, batch_mtp=True)
    assert (found.groups, found.batch_mtp, found.adapt_async) == (1, True, True)
    assert found.notes[0].startswith("1 group: --adapt-async 1 does not work in pipelined groups")


# -- drafts in the pipeline ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("piped", "options", "drafts", "note"),
    [
        ("1", {}, 1, None),
        ("3", {}, 3, None),
        ("3", {"spec": 4}, 3, None),  # at most spec - 1
        ("4", {"spec": 4}, 3, "STRATA_PIPED_MTP=4: 3 drafts a slot, --spec 4 allows no more"),
        ("1", {"spec": 1}, 0, "--spec 1 allows no more"),
        # 8 slots in 4 groups: 2 slots with their token and N drafts
        ("3", {"window_rows": 8}, 3, None),  # 2 * (1 + 3) = 8
        ("4", {"window_rows": 8}, 0, "2 slots with 4 drafts are 10 rows and --window-rows is 8"),
        ("4", {}, 4, None),  # a window of this engine has no limit of its own
        ("1", {"batch_mtp": False}, 0, "no drafts in the groups without --batch-mtp"),
        ("1", {"asked": 1}, 0, "STRATA_PIPED_MTP=1: it needs two groups or more"),
        ("1", {"slots": 5}, 0, "it needs two groups or more"),
        ("1", {"stages": 1}, 0, "it needs two groups or more"),
    ],
)
def test_piped_drafts(piped: str, options: dict[str, Any], drafts: int, note: str | None) -> None:
    found = plan(**{"batch_mtp": True, "environment": {PIPED: piped}, **options})
    assert found.piped_drafts == drafts
    said = [text for text in found.notes if PIPED in text and "--batch-mtp is off" not in text]
    assert len(said) == (note is not None)
    if note:
        assert note in said[0]


# -- no split -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "stages", "asked", "batch_mtp", "kept", "notes"),
    [
        (8, 1, None, True, True, []),
        (8, 1, 1, False, False, []),
        (8, 1, 4, True, True, ["--batch-groups 4: no layer split, so there is one group"]),
        (1, 4, 2, False, False, ["--batch-groups 2: one slot, so there is one group"]),
        (1, 4, None, True, False, ["--batch-mtp is off: it needs two slots or more, a lone"]),
    ],
)
def test_nothing_to_pipeline(
    slots: int, stages: int, asked: Any, batch_mtp: bool, kept: bool, notes: list[str]
) -> None:
    found = plan(slots=slots, stages=stages, asked=asked, batch_mtp=batch_mtp, adapt_async=True)
    assert (found.groups, found.batch_mtp, found.adapt_async) == (1, kept, True)
    assert len(found.notes) == len(notes)
    assert all(said.startswith(note) for said, note in zip(found.notes, notes, strict=True))


@given(
    slots=st.integers(0, 64),
    stages=st.integers(0, 8),
    asked=st.none() | st.just("auto") | st.integers(1, 70),
    batch_mtp=st.booleans(),
    adapt_async=st.booleans(),
    nvidia=st.booleans(),
    environment=st.dictionaries(
        st.sampled_from([NV_SERIAL, PIPED, "STRATA_BATCH_MTP_SERIAL", "STRATA_BATCH_SELF_COMMIT"]),
        st.sampled_from(["0", "1"]),
    ),
)
def test_every_plan_can_run(environment: dict[str, str], **asked: Any) -> None:
    found = plan_groups(environment=environment, **asked)
    assert found.groups >= 1
    assert max(1, asked["slots"]) % found.groups == 0
    if found.groups > 1:
        assert asked["stages"] > 1
        assert not found.adapt_async
        assert found.batch_mtp == (found.piped_drafts > 0)
    else:
        assert found.piped_drafts == 0
    # Nothing that was asked for is dropped without a word.
    dropped = (found.batch_mtp, found.adapt_async) != (asked["batch_mtp"], asked["adapt_async"])
    assert found.notes or not dropped


@pytest.mark.parametrize(
    ("slots", "stages", "resident", "words"),
    [
        (2, 2, False, "--batch-mtp with --batch-groups 1 gave +15%"),
        (4, 2, False, "+6 to 8% at 4 requests"),
        (4, 2, True, "leave --batch-mtp off"),
        (4, 1, True, None),
        (1, 2, True, None),
    ],
)
def test_tip(slots: int, stages: int, resident: bool, words: str | None) -> None:
    tip = groups_tip(slots, stages, resident)
    assert (tip is None) == (words is None)
    assert words is None or (tip is not None and words in tip)
