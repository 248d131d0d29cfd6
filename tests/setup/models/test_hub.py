"""Addresses, tokens and lists of a hub."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError
from setup.models.hub.client import read_endpoint
from tests.setup.hub_case import Case, running
from tests.setup.hub_server import Fault, HubFiles, hub_server


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with running(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("asked", "address"),
    [
        ("", "https://huggingface.co/a/b/resolve/main/m.gguf"),
        ("https://mirror.example/", "https://mirror.example/a/b/resolve/main/m.gguf"),
        (" http://h:80/hf/ ", "http://h/hf/a/b/resolve/main/m.gguf"),
    ],
)
def test_the_endpoint_selects_a_mirror(asked: str, address: str) -> None:
    endpoint = read_endpoint({"HF_ENDPOINT": asked})
    assert endpoint.address("a/b/resolve", "main", "m.gguf") == address


def test_names_are_quoted_in_addresses() -> None:
    endpoint = read_endpoint({})
    address = endpoint.address("a/b/resolve", "refs/pr/1", "a b/ü#?.gguf")
    assert address == "https://huggingface.co/a/b/resolve/refs%2Fpr%2F1/a%20b/%C3%BC%23%3F.gguf"
    assert endpoint.address("api/models/a/b/tree", "main", "").endswith("/tree/main")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("mirror.example", "http:// or https://"),
        ("ftp://h", "http:// or https://"),
        ("file:///a", "http:// or https://"),
        ("geheim://h", "http:// or https://"),
        ("geheim@h", "http:// or https://"),
        ("https:geheim", "its host"),
        ("https://", "its host"),
        ("https:///geheim", "its host"),
        ("https://ge heim/", "its host"),
        ("https://geheim%00/", "its host"),
        ("https://" + "geheim" * 11, "its host"),  # 66 characters, and a label has 63
        ("https://" + "geheim." * 37, "its host"),  # 37 * 7 = 259, and a name has 253
        ("https://h:x", "not the http or https address"),
        ("https://me:geh#eim@h", "not the http or https address"),
        ("https://h:0", "1 to 65535"),
        ("https://h:65536", "1 to 65535"),
        ("https://h:-1", "1 to 65535"),
        ("https://h:99999999999999999999", "1 to 65535"),
        ("https://me:geheim@h", "https://h with a user name or password"),
        ("https://geheim@h", "https://h with a user name or password"),
        ("https://h/@geheim", "https://h with a user name or password"),
        ("https://h?key=geheim", "https://h with a query"),
        ("https://h/a?", "https://h with a query"),
        ("https://h/a#geheim", "https://h with a fragment"),
        ("https://h/a\\geheim", "https://h with a backslash"),
        ("https://h/\x1b[2Jgeheim", "not the http or https address"),
    ],
)
def test_an_endpoint_that_is_none(asked: str, words: str) -> None:
    """Nothing but scheme and host is shown of it: an address may hold a password anywhere."""
    with pytest.raises(ConfigError, match="HF_ENDPOINT is") as caught:
        read_endpoint({"HF_ENDPOINT": asked})
    assert words in caught.value.message
    assert "geh" not in caught.value.message + caught.value.hint
    assert "https://huggingface.co" in caught.value.hint


@given(
    st.text(max_size=40)
    | st.text(alphabet="htps:/@?#[]%.:\\ 0aé", max_size=30).map("https://".__add__)
)
def test_whatever_the_endpoint_is_it_is_one_or_refused(asked: str) -> None:
    """And what is taken has an address for a file, with a host and a port that exist."""
    try:
        endpoint = read_endpoint({"HF_ENDPOINT": asked})
    except ConfigError:
        return
    address = httpx.URL(endpoint.address("a/b/resolve", "main", "m.gguf"))
    assert address.path.endswith("/a/b/resolve/main/m.gguf")
    assert address.port is None or 0 < address.port < 65_536


def test_a_path_in_the_endpoint_is_not_shown_either(case: Case) -> None:
    error = case.refused("127.0.0.1", HF_ENDPOINT=case.hub.endpoint + "/geheim")
    assert "geheim" not in error.message + error.hint + "".join(case.notes)


@pytest.mark.parametrize("token", ["hf geheim", "hf_geheim\nX: 1", "hf_gehéim"])
def test_a_token_that_cannot_be_sent_is_not_shown(token: str) -> None:
    with pytest.raises(ConfigError, match="HF_TOKEN") as caught:
        read_endpoint({"HF_TOKEN": token})
    assert "geh" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    ("address", "own"),
    [
        ("https://huggingface.co/a", True),
        ("https://huggingface.co:443/a", True),
        ("http://huggingface.co/a", False),
        ("https://huggingface.co.evil.example/a", False),
        ("https://huggingface.co@evil.example/a", False),
        ("https://huggingface.co:8443/a", False),
    ],
)
def test_only_the_hub_sees_the_token(address: str, own: bool) -> None:
    endpoint = read_endpoint({"HF_TOKEN": "hf_geheim"})
    assert bool(endpoint.headers(address)) is own
    assert endpoint.owns(address) is own
    assert "geheim" not in repr(endpoint)


def test_a_listing_on_another_host_does_not_see_the_token(case: Case) -> None:
    with hub_server(HubFiles(files=case.hub.files)) as other:
        link = {"Link": f'<{other.endpoint}/api/models/owner/model/tree/main>; rel="next"'}
        case.hub.tree_faults = [Fault(body=b"[]", headers=link)]
        case.run(HF_TOKEN="hf_secret")
        assert [a.token for a in other.asked] == [""]
    case.assert_whole()


def test_an_endless_listing_ends(case: Case) -> None:
    link = {"Link": f'<{case.hub.endpoint}/api/models/owner/model/tree/main>; rel="next"'}
    case.hub.tree_faults = [Fault(body=b"[]", headers=link)] * 200
    case.refused("more than 100 pages")
    assert len(case.hub.asked) == 100


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"\xff", b"[" * 100_000])
def test_something_that_is_no_listing(case: Case, body: bytes) -> None:
    case.hub.tree_faults = [Fault(body=body)]
    error = case.refused("127.0.0.1", "not a list of files")
    assert "HF_ENDPOINT" in error.hint


@pytest.mark.parametrize(
    "body",
    [
        b'[1, null, "x", {"type": "file"}, {"type": "file", "path": 1, "size": 1}]',
        b'[{"type": "directory", "path": "IQ3_S/m-00001-of-00002.gguf", "size": 300000}]',
    ],
)
def test_odd_entries_are_no_files(case: Case, body: bytes) -> None:
    """Neither at the revision nor at main."""
    case.hub.tree_faults = [Fault(body=body)] * 2
    case.refused("owner/model", "m-00001-of-00002.gguf is not there")


@pytest.mark.parametrize("status", [429, 500, 503, 408])
def test_a_question_is_asked_again(case: Case, status: int) -> None:
    case.hub.tree_faults = [Fault(status=status)] * 2
    case.run()
    assert case.pauses == [1.0, 2.0]
    case.assert_whole()


def test_a_hub_that_stays_broken(case: Case) -> None:
    case.hub.tree_faults = [Fault(status=500)] * 9
    case.refused("the server failed (500)", "3 failures in a row")


@pytest.mark.parametrize("name", ["", "model", "a/b/c", "../b", "a/..", "a b/c", "a/b?x"])
def test_a_repository_has_an_owner_and_a_name(case: Case, name: str) -> None:
    case.row = replace(case.row, repository=name)
    with pytest.raises(ConfigError, match="owner/name"):
        case.run()
    assert case.hub.asked == []


def test_a_row_without_files_is_an_error(case: Case) -> None:
    case.row = replace(case.row, files=())
    case.refused("IQ3_S: the catalogue names no files")
