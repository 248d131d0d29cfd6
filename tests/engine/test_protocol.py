"""Every message survives its line, and no line can do more than raise `ProtocolError`."""

import contextlib
import math
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import messages, protocol
from engine.messages import BatchGen, BatchStop, Done, Failed, Gen, Info, Keys, LogProbs, SlotDone
from engine.protocol import ProtocolError, format_message, parse_command, parse_event

counts = st.integers(0, 2**40)
floats = st.floats(0, 1e12)
rids = st.from_regex(r"[A-Za-z0-9._-]{0,64}", fullmatch=True)
words = st.from_regex(r"[A-Za-z0-9._:-]{1,12}", fullmatch=True)
fractions = st.floats(0, 1)
keys = st.builds(
    Keys,
    temperature=st.none() | st.floats(0, 100),
    top_p=st.none() | fractions,
    top_k=st.none() | counts,
    min_p=st.none() | fractions,
    seed=st.none() | st.integers(0, 2**63 - 1),
    penalty_repeat=st.none() | st.floats(0.01, 100),
    penalty_freq=st.none() | st.floats(-100, 100),
    penalty_present=st.none() | st.floats(-100, 100),
    penalty_last_n=st.none() | counts,
    spec_min_p=st.none() | fractions,
    logprobs=st.none() | counts,
    hashes=st.none() | st.booleans(),
    logit_bias=st.none()
    | st.lists(st.tuples(counts, st.floats(-100, 100)), min_size=1, max_size=4).map(tuple),
)
ids = st.lists(st.integers(0, 10**9 - 1), min_size=1, max_size=20).map(tuple)


def built(kind: type) -> st.SearchStrategy:
    """Any value of a message type, from the types of its fields."""
    special = {
        "rid": rids,
        "ids": ids,
        "keys": keys,
        "max_new": st.integers(1, 2**40),
        "values": st.dictionaries(words, st.integers(-(10**17), 10**17)),
        "others": st.lists(st.tuples(counts, st.floats(-1e6, 0)), max_size=5).map(tuple),
        "logprob": st.floats(-1e6, 0) | st.just(-math.inf),
        "finish": st.sampled_from(typing.get_args(messages.Finish)),
        "hash": words,
        "message": st.lists(words, min_size=1, max_size=6).map(" ".join),
    }
    plain = {int: counts, float: floats, bool: st.booleans()}
    fields = {}
    for name, hint in typing.get_type_hints(kind).items():
        fields[name] = special[name] if name in special else plain[hint]
    return st.builds(kind, **fields)


@settings(max_examples=500, deadline=None)
@given(st.one_of(*map(built, typing.get_args(messages.Event))))
def test_an_event_survives_its_line(event: messages.Event) -> None:
    line = format_message(event)
    assert "\n" not in line
    assert parse_event(line + "\r\n") == event


@settings(max_examples=300, deadline=None)
@given(st.one_of(*map(built, typing.get_args(messages.Command))))
def test_a_command_survives_its_line(command: messages.Command) -> None:
    assert parse_command(format_message(command)) == command


@settings(max_examples=500, deadline=None)
@given(st.text() | st.lists(words | st.sampled_from(["GEN", "BGEN", "a=1", "rid=7"])).map(" ".join))
def test_any_text_is_read_or_refused(line: str) -> None:
    for parse in (parse_command, parse_event):
        with contextlib.suppress(ProtocolError):
            parse(line)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "expected: GEN"),
        ("GENI 5 file.bin 1,2", "expected: GEN"),
        ("GEN", "id,id"),
        ("GEN 5 1,,2", "id,id"),
        ("GEN 5 1, 2", "key=value"),
        ("GEN 0 1", "at least 1"),
        ("BGEN 5 1,2", "slot max_new"),
        ("BGEN -1 5 1", ">= 0"),
        ("GEN 5 temperature=warm 1", "temperature"),
        ("GEN 5 temperature=nan 1", "temperature"),
        ("GEN 5 top_p=1.5 1", "top_p"),
        ("GEN 5 logit_bias=3 1", "logit_bias"),
        ("GEN 5 logit_bias=3:x 1", "logit_bias"),
        ("BSTOP", "slot"),
        ("BSTOP x", "slot"),
    ],
)
def test_a_bad_command_is_refused_and_keeps_its_rid(line: str, says: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_command(f"{line} rid=r-1" if line else "")
    assert says in caught.value.message
    assert caught.value.rid == ("r-1" if line else "")


def test_lines_as_the_reference_prints_them() -> None:
    assert parse_command("GEN 64 temperature=0.7 top_k=20 248045,846") == Gen(
        64, (248045, 846), Keys(temperature=0.7, top_k=20)
    )
    assert parse_command("BGEN 3 16 seed=7 1,2 rid=a") == BatchGen(3, 16, (1, 2), Keys(seed=7), "a")
    assert parse_command("BSTOP 3\r\n") == BatchStop(3)
    assert parse_event("READY 32768 stop") == messages.Ready(32768)
    assert parse_event("BDONE 3 16 stop 812.5") == SlotDone(3, 16, "stop", 812.5)
    assert parse_event("BADM 3 1 rid=a") == messages.Admitted(3, True, "a")
    assert parse_event("INFO batch_slots=4 engine=0.1.0") == Info(
        {"batch_slots": 4, "engine": "0.1.0"}
    )
    assert parse_event("ERR no room: 9 tokens rid=q") == Failed("no room: 9 tokens", "q")
    assert parse_event("LP 5 -0.25 7:-1.5 rid=q") == LogProbs(5, -0.25, ((7, -1.5),), "q")


def test_counts_of_done_may_be_fewer_or_more_than_known() -> None:
    assert parse_event("DONE 1 20 5.5 0.1 length 3 4") == Done(1, 20, 5.5, 0.1, "length", 3, 4)
    assert parse_event("DONE 1 2 3 4 stop 0 0 0 0 0 0 0 0 0 0 99 x rid=a").rid == "a"


def test_unknown_keys_are_skipped_and_absent_ones_stay_unsaid() -> None:
    command = parse_command("GEN 4 cvec=1 pcie_frac=0.5 1")
    assert command == Gen(4, (1,))
    assert format_message(command) == "GEN 4 1"


def test_an_error_text_stays_on_one_line() -> None:
    assert format_message(Failed("a\nb\r\n c", "r")) == "ERR a b c rid=r"


def test_the_text_names_every_word() -> None:
    text = protocol.__doc__ or ""
    for word in [*protocol.EVENTS, *protocol.COMMANDS, "GEN", "BGEN", "INFO", "ERR"]:
        assert word in text
