"""Hubs that say what cannot be, or offer other files than the catalogue knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ConfigError
from setup.models.hub.client import open_client
from setup.models.hub.part_file import part_path
from tests.setup.hub_case import FIRST, SECOND, Case, bare, content, running
from tests.setup.hub_server import Fault, sha256


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with running(tmp_path) as made:
        yield made


def _listed(size: str) -> bytes:
    """A listing with the first shard, which has this size."""
    return f'[{{"type": "file", "path": "{FIRST}", "size": {size}}}]'.encode()


def test_a_mirror_with_another_file_is_not_trusted(case: Case) -> None:
    case.hub.false_hashes[FIRST] = "0" * 64
    error = case.refused(FIRST, "SHA-256 " + "0" * 64, "the catalogue")
    assert "mirror" in error.hint
    case.hub.false_hashes.clear()
    case.hub.false_sizes[SECOND] = 5
    case.refused(SECOND, "size 5", "1000")
    case.hub.false_sizes[SECOND] = 0
    case.refused(SECOND, "size 0", "1000")
    assert case.hub.bytes_asked(FIRST) == []


@pytest.mark.parametrize("tree", [True, False])
@pytest.mark.parametrize("size", [1_000, 2_000])
def test_main_is_no_way_round_the_catalogue(case: Case, tree: bool, size: int) -> None:
    """404 at the pinned revision, and another file at main: of the same size, and of another."""
    case.hub.revisions, case.hub.tree = ("main",), tree
    case.hub.files[SECOND] = content(7, size)
    case.refused(SECOND, "does not have revision aaaaaaaaaaaa", "main has another file")
    assert case.there() == {}


@pytest.mark.parametrize("revisions", [(), ("main",)])
@pytest.mark.parametrize("tree", [True, False])
@pytest.mark.parametrize("lfs", [True, False])
def test_the_bytes_are_compared_and_not_the_hubs_word(
    case: Case, revisions: tuple[str, ...], tree: bool, lfs: bool
) -> None:
    """It lists the catalogue's SHA-256, or none at all, and sends something else of that size."""
    case.hub.revisions = revisions or case.hub.revisions
    case.hub.tree, case.hub.lfs = tree, lfs
    wrong = content(9, 300_000)
    case.hub.faults = [Fault(body=wrong)]
    case.refused(FIRST, sha256(wrong), sha256(case.hub.files[FIRST]), "deleted")
    assert case.there() == {}


@pytest.mark.parametrize("lacks", ["sha256", "size_bytes", "both"])
def test_what_nothing_can_be_compared_with_is_refused(case: Case, lacks: str) -> None:
    """The hub's own SHA-256 says nothing about the hub."""
    first, second = case.row.files
    poor = {
        "sha256": replace(second, sha256=""),
        "size_bytes": replace(second, size_bytes=0),
        "both": bare(case.row)[1],
    }
    case.row = replace(case.row, files=(first, poor[lacks]))
    error = case.refused("no size and SHA-256 of", SECOND)
    assert "--model" in error.hint
    assert case.hub.asked == []


@pytest.mark.parametrize(
    "size", ["-1", "true", "null", '"5"', "5.0", "1e300", "1" + "0" * 15, "9" * 4_000]
)
def test_an_absurd_size_is_a_bad_answer(case: Case, size: str) -> None:
    """A petabyte, and numbers of so many digits that Python refuses to write them."""
    case.hub.tree_faults = [Fault(body=_listed(size))]
    error = case.refused("bad answer", "size", FIRST)
    assert len(error.message) < 200


@pytest.mark.parametrize("size", ["-1", "5 GB", "²", "9" * 16, "9" * 5_000])
def test_an_absurd_size_of_one_file_is_a_bad_answer(case: Case, size: str) -> None:
    case.hub.tree = False
    case.hub.linked_size = size.encode().decode("latin-1")
    error = case.refused("bad answer", "size", FIRST)
    assert len(error.message) < 200


@pytest.mark.parametrize("length", ["²", "9" * 19, "3e5"])
def test_an_absurd_length_is_no_traceback(case: Case, length: str) -> None:
    headers = {"Content-Length": length.encode().decode("latin-1")}
    case.hub.faults = [Fault(headers=headers)] * 9
    case.refused("127.0.0.1" if not length.isascii() or "e" in length else "300000 bytes")


@pytest.mark.parametrize("chunk", [b"[" + b" " * (4 << 20) + b"]", b"[]" + b" " * (5 << 20)])
def test_an_endless_page_is_not_read(case: Case, chunk: bytes) -> None:
    """One byte and more beyond 4 MiB: 4,194,304."""
    case.hub.tree_faults = [Fault(body=chunk)]
    case.refused("bad answer", "more than 4194304 bytes")
    assert case.pauses == []


def test_an_encoded_page_is_not_unpacked(case: Case) -> None:
    case.hub.tree_faults = [Fault(body=b"[]", headers={"Content-Encoding": "gzip"})]
    case.refused("bad answer", "encoded")


@pytest.mark.parametrize("from_body", [True, False])
def test_an_answer_that_trickles_ends(case: Case, from_body: bool) -> None:
    """A byte each 10 ms is no silence, in headers and in the body; 3 attempts of 0.1 s."""
    case.limits = replace(case.limits, question_s=0.1)
    case.hub.tree_faults = [Fault(trickle_s=0.01, from_body=from_body)] * 3
    case.refused("no whole answer within 0.1 s", "3 failures in a row")


def test_a_file_whose_headers_trickle_is_asked_for_again(case: Case) -> None:
    case.limits = replace(case.limits, question_s=0.1)
    case.hub.faults = [Fault(trickle_s=0.01)]
    case.run()
    case.assert_whole()
    assert "no whole answer within 0.1 s" in case.notes[0]


def test_a_slow_file_may_take_longer_than_a_question(case: Case) -> None:
    """0.2 s of silence after the headers, where a question has 0.1."""
    case.limits = replace(case.limits, question_s=0.1)
    case.hub.faults = [Fault(stall_s=0.2)]
    case.run()
    case.assert_whole()
    assert case.pauses == []


def test_a_list_of_slow_pages_ends(case: Case) -> None:
    """Each reading of the clock is 100 s later: begun at 100, pages at 200, 300, 400 and 500."""
    times = iter(range(100, 10_000, 100))
    case.clock = lambda: float(next(times))
    link = {"Link": f'<{case.hub.endpoint}/api/models/owner/model/tree/main>; rel="next"'}
    case.hub.tree_faults = [Fault(body=b"[]", headers=link)] * 9
    case.refused("bad answer", "takes longer than 300 s")
    assert len(case.hub.asked) == 4


BAD_ADDRESSES = [
    "http://[broken",
    "http://h:x/",
    "http://h:99999/",
    "http://h:0/",
    "http://" + "a" * 64 + "/",
    "http://" + "a." * 127 + "a/",
    "http://xn--\x80/",
    "ftp://h/",
    "javascript:1",
    "http://a b/",
    "http://h/\x01",
]


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_a_next_page_of_no_use_is_a_bad_answer(case: Case, address: str) -> None:
    case.hub.tree_faults = [Fault(body=b"[]", headers={"Link": f'<{address}>; rel="next"'})]
    error = case.refused("127.0.0.1")
    assert error.message.isprintable()
    assert len(error.message) < 250
    assert case.pauses == []


@pytest.mark.parametrize("address", BAD_ADDRESSES)
@pytest.mark.parametrize("file", [True, False])
def test_a_redirect_of_no_use_is_refused_at_once(case: Case, address: str, file: bool) -> None:
    fault = Fault(status=302, headers={"Location": address})
    (case.hub.faults if file else case.hub.tree_faults).append(fault)
    error = case.refused("127.0.0.1")
    assert error.message.isprintable()
    assert len(error.message) < 250
    assert case.pauses == []


@pytest.mark.parametrize(
    "link", ["", ";", "<", "<>", '<>; rel="next"', "rel=next", "<a>; rel", ",,"]
)
def test_a_link_that_names_nothing_is_the_end(case: Case, link: str) -> None:
    entries = [{"type": "file", "path": n, "size": len(d)} for n, d in case.hub.files.items()]
    case.hub.tree_faults = [Fault(body=json.dumps(entries).encode(), headers={"Link": link})]
    case.run()
    case.assert_whole()


HEADERS = ["Link", "Location", "ETag", "Content-Range", "Retry-After"]
HEADER = st.text(
    alphabet=st.characters(min_codepoint=1, max_codepoint=255, exclude_characters="\r\n"),
    max_size=30,
)


@given(
    name=st.sampled_from(["Link", "Location", "ETag", "Content-Range", "Retry-After"]), text=HEADER
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_header_is_it_is_an_error_with_a_hint_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, name: str, text: str
) -> None:
    value = f'<http:{text}>; rel="next"' if name == "Link" else text
    status = {"Location": 302, "Retry-After": 429}.get(name, 0)
    with running(tmp_path_factory.mktemp("headers")) as case:
        case.hub.tree_faults = (
            [Fault(body=b"[]", headers={"Link": value})] if name == "Link" else []
        )
        case.hub.faults = [Fault(cut=100), Fault(status=status, headers={name: value}, cut=100)]
        said = []
        try:
            case.run()
        except ConfigError as error:
            said = [error.message, error.hint]
        assert all(text.isprintable() and text for text in [*said, *case.notes])


@pytest.mark.parametrize("etag", ['"\xe9"', '"a\x7f"', '"' + "x" * 300 + '"'])
def test_an_etag_that_cannot_be_sent_back_is_none(case: Case, etag: str) -> None:
    case.hub.faults = [Fault(cut=1_000, headers={"ETag": etag}), Fault()]
    case.hub.etags = False
    case.run()
    case.assert_whole()
    assert [a.if_range for a in case.hub.asked if a.start] == [""]


def test_a_type_of_content_is_shortened_and_escaped(case: Case) -> None:
    kind = "text/html\x1b[2J\x07" + "A" * 900
    case.hub.faults = [Fault(length=5, cut=0, headers={"Content-Type": kind})]
    error = case.refused("sends 5 bytes (text/html\\x1b[2J\\x07AAA")
    assert error.message.isprintable()
    assert len(error.message) < 250


def test_more_than_the_rest_of_a_part_is_refused(case: Case) -> None:
    """1,000 bytes are here, and the answer for the others has one too many."""
    body = content(1, 300_000)[1_000:] + b"x"
    case.hub.faults = [Fault(cut=1_000), Fault(chunked=True, body=body)]
    case.refused("300000 bytes", "more than that")
    assert not part_path(case.folder / FIRST).exists()


def test_a_proxy_is_used(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's name leads nowhere: only the proxy, here the hub itself, can answer."""
    monkeypatch.setenv("HTTP_PROXY", case.hub.endpoint)
    monkeypatch.delenv("NO_PROXY", raising=False)
    case.run(HF_ENDPOINT="http://mirror.invalid")
    case.assert_whole()


@pytest.mark.parametrize(
    ("scheme", "words"), [("http", "wants a login (407)"), ("https", "the proxy refuses: 501")]
)
def test_a_proxy_that_refuses_is_told_from_the_hub(
    case: Case, monkeypatch: pytest.MonkeyPatch, scheme: str, words: str
) -> None:
    """The server here knows no tunnels, which https needs."""
    monkeypatch.setenv(f"{scheme.upper()}_PROXY", case.hub.endpoint)
    monkeypatch.delenv("NO_PROXY", raising=False)
    case.hub.tree_faults = [Fault(status=407)]
    error = case.refused("mirror.invalid", words, HF_ENDPOINT=f"{scheme}://mirror.invalid")
    assert scheme == "https" or "HTTP_PROXY" in error.hint


@pytest.mark.parametrize("proxy", ["odd://me:geheim@h", "http://h:x", "http://[geheim", "geheim h"])
def test_a_proxy_of_no_use_is_named_and_not_shown(
    case: Case, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    error = case.refused(HF_ENDPOINT="http://mirror.invalid")
    assert "proxy" in error.message.lower() or "mirror.invalid" in error.message
    assert "geheim" not in error.message + error.hint


def test_certificates_that_are_not_there_are_told(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(case.folder / "none.pem"))
    case.connect = open_client
    error = case.refused("certificates", "No such file")
    assert "SSL_CERT_FILE" in error.hint
