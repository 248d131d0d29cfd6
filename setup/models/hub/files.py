"""Where the files of a model are on a hub, and whether it says that they are others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from engine.errors import ConfigError
from setup.models.catalogue import ModelFile, ModelRow
from setup.models.hub.answers import MissingError, bad_answer
from setup.models.hub.client import Endpoint, address_fault, check_repository
from setup.models.hub.questions import Answer, Questions
from setup.models.hub.retry import Note, Pace
from setup.models.hub.shown import shown, whole_number

_HEX = frozenset("0123456789abcdef")
_MOST_PAGES = 100
_MOST_BYTES = 10**15
Facts = tuple[int | None, str]
"""What a hub says about a file: its size and its SHA-256; None and "" where it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file to get, with the catalogue's size and SHA-256."""

    path: str
    address: str
    size_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name without folders."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """A hub that can be asked."""

    endpoint: Endpoint
    client: httpx.Client
    pace: Pace

    def files(self, row: ModelRow) -> tuple[RemoteFile, ...]:
        """The files of `row` at its revision, or at `main`, where it is gone and they are the same.

        What the hub says can only refuse a file; size and SHA-256 are the catalogue's, which must
        have both (`need_hashes`). Raises `ConfigError` when the hub does not have the files,
        refuses them, cannot be reached, or says that they are others.
        """
        check_repository(row.repository)
        for revision in dict.fromkeys((row.revision, "main")):
            try:
                found = self._files_at(row, revision)
            except MissingError as error:
                missing = str(error)
                continue
            if revision != row.revision:
                _warn(self.pace.note, row)
            return found
        raise ConfigError(
            f"{row.repository}: {missing}", "look for the model under another name, or on a mirror"
        )

    def _files_at(self, row: ModelRow, revision: str) -> tuple[RemoteFile, ...]:
        paths = [file.path for file in row.files]
        folders = dict.fromkeys(path.rpartition("/")[0] for path in paths)
        try:
            listed = {
                path: _facts(self.endpoint.host, path, entry)
                for folder in folders
                for entry in self._tree(row.repository, revision, folder)
                if entry.get("type") == "file" and (path := str(entry.get("path"))) in paths
            }
        except MissingError:
            # A mirror without the listing: every file is asked for by itself.
            listed = {path: self._head(row.repository, revision, path) for path in paths}
        return tuple(self._joined(row, revision, f, listed.get(f.path)) for f in row.files)

    def _joined(
        self, row: ModelRow, revision: str, file: ModelFile, facts: Facts | None
    ) -> RemoteFile:
        """The file by the catalogue, unless the hub says that it has another one."""
        host = self.endpoint.host
        if facts is None:
            raise MissingError(f"{host}: {file.path} is not there")
        size, digest = facts
        for name, known, said in (
            ("size", file.size_bytes, size),
            ("SHA-256", file.sha256, digest),
        ):
            if said not in (None, "", known):
                raise ConfigError(
                    _disagreement(host, row, revision, file, f"{name} {said}")
                    + f", but the catalogue {known}",
                    "set HF_ENDPOINT to another mirror, or get the file yourself and name it with "
                    "--model",
                )
        address = self._address(row.repository, revision, file.path)
        return RemoteFile(
            path=file.path, address=address, size_bytes=file.size_bytes, sha256=file.sha256
        )

    def _tree(self, repository: str, revision: str, folder: str) -> Iterator[dict[str, Any]]:
        """Every entry of a folder of the repository."""
        before = f"api/models/{repository}/tree"
        address = self.endpoint.address(before, revision, folder)
        end = self.pace.clock() + self.pace.limits.listing_s
        for _ in range(_MOST_PAGES):
            answer = self._ask("GET", address, f"{repository} at {revision}")
            yield from _entries(answer)
            following = _following(answer)
            if not following:
                return
            address = following
            if self.pace.clock() > end:
                raise bad_answer(
                    self.endpoint.host,
                    f"the list of {repository} takes longer than {self.pace.limits.listing_s:g} s",
                )
        raise bad_answer(
            self.endpoint.host, f"the list of {repository} has more than {_MOST_PAGES} pages"
        )

    def _head(self, repository: str, revision: str, path: str) -> Facts:
        address = self._address(repository, revision, path)
        answer = self._ask("HEAD", address, f"{repository}: {path} at {revision}")
        headers = answer.response.headers
        linked = "x-linked-size" in headers
        size, tag = ("x-linked-size", "x-linked-etag") if linked else ("content-length", "etag")
        said = headers.get(size)
        length = None if said is None else whole_number(said)
        if said is not None and length is None:
            raise bad_answer(answer.host, f"the size {shown(said, 30)} of {path}")
        return length, _digest(headers.get(tag, ""))

    def _address(self, repository: str, revision: str, path: str) -> str:
        return self.endpoint.address(f"{repository}/resolve", revision, path)

    def _ask(self, method: str, address: str, what: str) -> Answer:
        questions = Questions(endpoint=self.endpoint, client=self.client, pace=self.pace)
        return questions.ask(method, address, what)


def _warn(note: Note, row: ModelRow) -> None:
    note(
        f"{row.repository} no longer has revision {row.revision[:12]}: its branch main is taken, "
        "and its files are checked against the catalogue's SHA-256"
    )


def need_hashes(row: ModelRow) -> None:
    """Raises `ConfigError` for a row with a file that nothing could be compared with: what a server
    says about its own file proves nothing."""
    for file in row.files:
        if not file.sha256 or file.size_bytes <= 0:
            raise ConfigError(
                f"{row.key}: the catalogue has no size and SHA-256 of {file.path}: whatever a "
                "server sent would pass for it",
                "get the file yourself from a source that you trust, and name it with --model",
            )


def _disagreement(host: str, row: ModelRow, revision: str, file: ModelFile, said: str) -> str:
    pinned = row.revision[:12]
    if revision == row.revision:
        return f"{file.path}: {host} says {said} at revision {pinned}"
    return (
        f"{file.path}: {host} does not have revision {pinned}, and its main has another file: "
        f"{said}"
    )


def _following(answer: Answer) -> str:
    """The address of the next page; empty at the end."""
    response = answer.response
    try:
        following = response.links.get("next", {}).get("url")
        address = response.url.join(following) if following else None
    except (httpx.InvalidURL, ValueError):
        address, following = None, "?"
    if address is not None and not address_fault(address):
        return str(address)
    if following:
        said = shown(response.headers.get("link", ""))
        raise bad_answer(answer.host, f"the Link header {said} names no next page")
    return ""


def _entries(answer: Answer) -> list[dict[str, Any]]:
    try:
        entries = json.loads(answer.body)
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list):
        raise bad_answer(answer.host, "it is not a list of files")
    return [entry for entry in entries if isinstance(entry, dict)]


def _facts(host: str, path: str, entry: dict[str, Any]) -> Facts:
    size, lfs = entry.get("size"), entry.get("lfs")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < _MOST_BYTES:
        raise bad_answer(host, f"the size {_size_text(size)} of {path}")
    digest = lfs.get("oid") if isinstance(lfs, dict) else ""
    return size, _digest(digest if isinstance(digest, str) else "")


def _size_text(size: object) -> str:
    """A number of thousands of digits cannot even be written."""
    if isinstance(size, int) and abs(size) >= _MOST_BYTES:
        return "of a petabyte or more"
    return shown(size, 30)


def _digest(text: str) -> str:
    """The SHA-256 in an ETag or an LFS id; empty for any other tag."""
    text = text.removeprefix("W/").strip('"').removeprefix("sha256:").lower()
    return text if len(text) == 64 and set(text) <= _HEX else ""
