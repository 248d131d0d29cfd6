"""Servers that break, lie or refuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from setup.models.hub.part_file import notes_path, part_path
from tests.setup.hub_case import FIRST, SECOND, Case, content, running
from tests.setup.hub_server import Fault, HubFiles, hub_server, sha256

GATE = "accept them"


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with running(tmp_path) as made:
        yield made


def test_a_file_that_changed_on_the_server_is_not_stitched(case: Case) -> None:
    """If-Range gets the new file as a whole, which is not the catalogue's."""

    def change() -> None:
        case.hub.files[FIRST] = content(9, 300_000)

    case.hub.faults = [Fault(cut=1_000), Fault(before=change)]
    case.refused(sha256(content(9, 300_000)), "deleted")
    assert case.there() == {}
    assert case.hub.bytes_asked(FIRST) == [None, 1_000]
    assert "got again" in case.notes[-1]


def test_a_server_without_if_range_is_caught_by_its_etag(case: Case) -> None:
    other = {"ETag": '"other"'}
    case.hub.faults = [Fault(cut=1_000), Fault(headers=other)]
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == [None, 1_000, None]
    assert "another version" in case.notes[1]


def test_a_server_that_ignores_ranges_starts_over(case: Case) -> None:
    case.hub.faults = [Fault(cut=1_000), Fault(whole=True)]
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == [None, 1_000]
    assert "whole file" in case.notes[-1]


def test_starting_over_again_and_again_is_no_progress(case: Case) -> None:
    """4 attempts: 5,000 bytes, then never more than those."""
    case.hub.faults = [Fault(cut=5_000, whole=True)] + [Fault(cut=4_000, whole=True)] * 9
    case.refused("4 failures in a row")
    assert len(case.hub.bytes_asked(FIRST)) == 4


@pytest.mark.parametrize("first", [Fault(cut=0), Fault(status=503), Fault(cut=7)])
def test_attempts_without_a_byte_end_at_the_limit(case: Case, first: Fault) -> None:
    case.hub.faults = [first] + [Fault(cut=0)] * 9
    error = case.refused("m-00001-of-00002.gguf", "4 failures in a row")
    assert "again" in error.hint
    assert len(case.hub.bytes_asked(FIRST)) == 4
    # doubled, and none after the last failure
    assert case.pauses == [1.0, 2.0, 4.0]


def test_pauses_have_a_longest(case: Case) -> None:
    case.limits = replace(case.limits, attempts=7)
    case.hub.faults = [Fault(status=500)] * 6
    case.run()
    assert case.pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_stall_is_a_break(case: Case) -> None:
    case.limits = replace(case.limits, stall_s=0.1)
    case.hub.faults = [Fault(stall_s=0.4)]
    case.run()
    case.assert_whole()
    assert "no data came in time" in case.notes[0]


@pytest.mark.parametrize("status", [429, 503])
def test_the_pause_that_a_server_asks_for_is_made(case: Case, status: int) -> None:
    case.hub.faults = [Fault(status=status, headers={"Retry-After": "42"})]
    case.run()
    case.assert_whole()
    assert case.pauses == [42.0]


def test_too_long_a_pause_is_left_to_the_user(case: Case) -> None:
    case.hub.faults = [Fault(status=429, headers={"Retry-After": "301"})]
    case.refused("too many requests", "301 s")
    assert case.pauses == []


@pytest.mark.parametrize("asked", ["Wed, 21 Oct 2026 07:28:00 GMT", "-5", "1e9", "٣", "9" * 400])
def test_an_odd_retry_after_changes_nothing(case: Case, asked: str) -> None:
    quoted = asked.encode("latin-1", "replace").decode("latin-1")
    case.hub.faults = [Fault(status=429, headers={"Retry-After": quoted})]
    case.run()
    assert case.pauses == [1.0]


def test_416_starts_over(case: Case) -> None:
    case.hub.faults = [Fault(cut=1_000), Fault(status=416)]
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == [None, 1_000, None]


@pytest.mark.parametrize("shift", [-1, 1, 1_000])
def test_another_range_than_asked_for_starts_over(case: Case, shift: int) -> None:
    case.hub.faults = [Fault(cut=2_000), Fault(shift=shift)]
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == [None, 2_000, None]


@pytest.mark.parametrize("text", ["", "bytes", "bytes 1000-5/x", "pages 1000-299999/300000"])
def test_an_unreadable_range_starts_over(case: Case, text: str) -> None:
    case.hub.faults = [Fault(cut=1_000), Fault(headers={"Content-Range": text})]
    case.run()
    case.assert_whole()


@pytest.mark.parametrize("length", [0, 1, 299_999, 300_001, 10**15])
def test_a_wrong_length_is_refused_before_a_byte(case: Case, length: int) -> None:
    case.hub.faults = [Fault(length=length, cut=0)]
    error = case.refused("300000 bytes", f"{length} bytes")
    assert "HF_ENDPOINT" in error.hint


def test_a_wrong_total_of_a_range_is_refused_and_the_part_stays(case: Case) -> None:
    case.hub.faults = [Fault(cut=1_000), Fault(total=300_001)]
    case.refused("sends 300001 bytes")
    assert part_path(case.folder / FIRST).stat().st_size == 1_000


def test_more_bytes_than_said_are_refused_and_deleted(case: Case) -> None:
    case.hub.faults = [Fault(chunked=True, body=content(1, 300_001))]
    case.refused("300000 bytes", "more than that")
    assert case.there() == {}


def test_fewer_bytes_without_a_length_are_a_break(case: Case) -> None:
    case.hub.faults = [Fault(chunked=True, cut=250_000)]
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == [None, 250_000]


def test_a_page_instead_of_the_file_is_named(case: Case) -> None:
    page = b"<html>Please log in to this hotel"
    case.hub.faults = [Fault(status=200, body=page, headers={"Content-Type": "text/html"})]
    case.refused("sends 33 bytes (text/html)")


def test_an_encoded_answer_is_refused(case: Case) -> None:
    case.hub.faults = [Fault(headers={"Content-Encoding": "gzip"})]
    case.refused("encoded")


def test_a_wrong_content_is_deleted_and_said(case: Case) -> None:
    wrong = content(5, 300_000)
    case.hub.faults = [Fault(body=wrong)]
    case.refused(sha256(wrong), sha256(case.hub.files[FIRST]), "deleted")
    assert case.there() == {}
    case.run()
    case.assert_whole()


@pytest.mark.parametrize(
    ("status", "code", "token", "words", "hint"),
    [
        (401, "GatedRepo", "", "accepted its terms (401)", GATE),
        (403, "GatedRepo", "hf_wrong", "accepted its terms (403)", GATE),
        (401, "RepoNotFound", "", "without a login (401), or has no such", "set HF_TOKEN"),
        (401, "", "hf_wrong", "refuses it to this token (401)", "HF_TOKEN is valid"),
        (403, "", "hf_wrong", "refuses it to this token (403)", "may read"),
    ],
)
def test_refusals_are_told_apart(
    case: Case, status: int, code: str, token: str, words: str, hint: str
) -> None:
    case.hub.gate, case.hub.token = (status, code), "hf_right"
    error = case.refused(words, HF_TOKEN=token)
    assert hint in error.hint
    assert case.pauses == []
    assert not token or token not in error.message + error.hint + "".join(case.notes)


def test_a_lapsed_permission_for_the_bytes_is_asked_for_again(case: Case) -> None:
    """403 from the host that the hub sent us to says nothing about the token."""
    with hub_server(HubFiles(files=case.hub.files, gate=(403, ""))) as cdn:
        case.hub.faults = [Fault(redirect=cdn.endpoint)]
        case.run(HF_TOKEN="hf_right")
    case.assert_whole()
    assert "permission is refused (403)" in case.notes[0]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(status=404), "is not there (404)"),
        (Fault(status=400), "status 400"),
        (Fault(status=204), "status 204"),
        (Fault(status=206), "status 206"),
        (Fault(redirect="ftp://127.0.0.1"), "a place of no use"),
        (Fault(status=302, headers={"Location": "http://[broken"}), "127.0.0.1"),
    ],
)
def test_answers_that_no_attempt_mends(case: Case, fault: Fault, words: str) -> None:
    case.hub.faults = [fault] * 9
    case.refused(words)


def test_a_ring_of_redirects_ends(case: Case) -> None:
    case.hub.faults = [Fault(redirect=case.hub.endpoint)] * 50
    case.refused("a place of no use")


def test_no_server_at_all(case: Case) -> None:
    """Port 9 of this machine: nobody listens."""
    case.refused("127.0.0.1: ", "3 failures in a row", HF_ENDPOINT="http://127.0.0.1:9")
    assert notes_path(case.folder / FIRST).exists() is False


@pytest.mark.parametrize("gone", [FIRST, SECOND])
def test_a_model_that_is_gone(case: Case, gone: str) -> None:
    del case.hub.files[gone]
    case.refused("owner/model", gone.rpartition("/")[2])
