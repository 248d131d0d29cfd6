"""Addresses, tokens and lists of a hub."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import ConfigError
from setup.models.hub.client import read_endpoint
from tests.setup.hub_case import FIRST, SECOND, Case, bare, running
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
    "asked", ["mirror.example", "ftp://h", "https://", "https://h:x", "file:///a", "https://h?a=b"]
)
def test_an_endpoint_that_is_none(asked: str) -> None:
    with pytest.raises(ConfigError, match="HF_ENDPOINT is") as caught:
        read_endpoint({"HF_ENDPOINT": asked})
    assert "https://huggingface.co" in caught.value.hint


def test_a_password_in_the_endpoint_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="HF_ENDPOINT") as caught:
        read_endpoint({"HF_ENDPOINT": "https://me:geheim@h"})
    assert "geheim" not in caught.value.message + caught.value.hint


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
        b'[{"type": "file", "path": "IQ3_S/m-00001-of-00002.gguf", "size": -1}]',
        b'[{"type": "file", "path": "IQ3_S/m-00001-of-00002.gguf", "size": true}]',
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


def test_a_mirror_with_another_file_is_not_trusted(case: Case) -> None:
    case.hub.false_hashes[FIRST] = "0" * 64
    error = case.refused(FIRST, "SHA-256 " + "0" * 64, "the catalogue")
    assert "mirror" in error.hint
    case.hub.false_hashes.clear()
    case.hub.false_sizes[SECOND] = 5
    case.refused(SECOND, "size 5", "1000")


def test_a_wrong_size_of_the_hub_shows_at_the_download(case: Case) -> None:
    case.row = replace(case.row, files=bare(case.row))
    case.hub.false_sizes[FIRST] = 299_999
    case.refused("299999 bytes by the hub's list", "sends 300000 bytes")


def test_a_file_without_a_size_is_an_error(case: Case) -> None:
    case.row = replace(case.row, files=bare(case.row))
    case.hub.false_sizes[FIRST] = 0
    case.refused(FIRST, "does not say how large")


@pytest.mark.parametrize("name", ["", "model", "a/b/c", "../b", "a/..", "a b/c", "a/b?x"])
def test_a_repository_has_an_owner_and_a_name(case: Case, name: str) -> None:
    case.row = replace(case.row, repository=name)
    with pytest.raises(ConfigError, match="owner/name"):
        case.run()
    assert case.hub.asked == []


def test_a_row_without_files_is_an_error(case: Case) -> None:
    case.row = replace(case.row, files=())
    case.refused("IQ3_S: the catalogue names no files")
