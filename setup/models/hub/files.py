"""What a hub says about the files of a model: sizes and SHA-256, at a pinned revision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from engine.errors import ConfigError
from setup.models.catalogue import ModelFile, ModelRow
from setup.models.hub.answers import MissingError, check_status, transport
from setup.models.hub.client import Endpoint, check_repository
from setup.models.hub.retry import Note, Pace

_HEX = frozenset("0123456789abcdef")
_MOST_PAGES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file to get. `sha256` is empty where neither the catalogue nor the hub knows it."""

    path: str
    address: str
    size_bytes: int
    sha256: str = ""

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
        """The files of `row` at its revision; at `main`, with a warning, where that is gone.

        Raises `ConfigError` when the hub does not have them, refuses them or cannot be reached,
        or when it has other files than the catalogue knows at that revision.
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
        wanted = row.files
        folders = dict.fromkeys(file.path.rpartition("/")[0] for file in wanted)
        try:
            listed = {
                name: facts
                for folder in folders
                for name, facts in self._tree(row.repository, revision, folder)
            }
        except MissingError:
            # A mirror without the listing: every file is asked for by itself.
            listed = {f.path: self._head(row.repository, revision, f.path) for f in wanted}
        pinned = revision == row.revision
        return tuple(self._joined(row, revision, f, listed.get(f.path), pinned) for f in wanted)

    def _joined(
        self,
        row: ModelRow,
        revision: str,
        file: ModelFile,
        facts: tuple[int, str] | None,
        pinned: bool,
    ) -> RemoteFile:
        """The catalogue's and the hub's word on a file; they must agree at the pinned revision."""
        if facts is None:
            raise MissingError(f"{self.endpoint.host}: {file.path} is not there")
        size, digest = facts
        if pinned:
            for what, known, said in (
                ("size", file.size_bytes, size),
                ("SHA-256", file.sha256, digest),
            ):
                if known and said and known != said:
                    raise ConfigError(
                        f"{file.path}: {self.endpoint.host} says {what} {said}, the catalogue "
                        f"{known} at revision {revision[:12]}",
                        "do not trust this mirror: set HF_ENDPOINT to another one",
                    )
            size, digest = size or file.size_bytes, digest or file.sha256
        if size <= 0:
            raise ConfigError(
                f"{file.path}: {self.endpoint.host} does not say how large it is",
                "set HF_ENDPOINT to another mirror",
            )
        address = self._address(row.repository, revision, file.path)
        return RemoteFile(path=file.path, address=address, size_bytes=size, sha256=digest)

    def _tree(
        self, repository: str, revision: str, folder: str
    ) -> Iterator[tuple[str, tuple[int, str]]]:
        """(path, (size, SHA-256 or "")) of every file in a folder of the repository."""
        before = f"api/models/{repository}/tree"
        address: str | None = self.endpoint.address(before, revision, folder)
        for _ in range(_MOST_PAGES):
            if address is None:
                return
            response = self._get("GET", address, f"{repository} at {revision}")
            for entry in _entries(response):
                facts = _facts(entry)
                if facts is not None:
                    yield facts
            following = response.links.get("next", {}).get("url")
            address = str(response.url.join(following)) if following else None
        raise ConfigError(
            f"{self.endpoint.host}: lists {repository} on more than {_MOST_PAGES} pages",
            "set HF_ENDPOINT to another mirror",
        )

    def _head(self, repository: str, revision: str, path: str) -> tuple[int, str]:
        address = self._address(repository, revision, path)
        headers = self._get("HEAD", address, f"{repository}: {path} at {revision}").headers
        linked = headers.get("x-linked-size", "").isdigit()
        size, tag = ("x-linked-size", "x-linked-etag") if linked else ("content-length", "etag")
        length = headers.get(size, "")
        return (int(length) if length.isdigit() else 0), _digest(headers.get(tag, ""))

    def _address(self, repository: str, revision: str, path: str) -> str:
        return self.endpoint.address(f"{repository}/resolve", revision, path)

    def _get(self, method: str, address: str, what: str) -> httpx.Response:
        headers = self.endpoint.headers(address)
        request = self.client.build_request(method, address, headers=headers)

        def question() -> httpx.Response:
            with transport(self.endpoint.host):
                response = self._facts_of(request)
            if not response.has_redirect_location:
                check_status(response, what, self.endpoint)
            return response

        return self.pace.ask(question, what)

    def _facts_of(self, request: httpx.Request) -> httpx.Response:
        """The answer to a question, of the first host that has one.

        The hub tells about a file where it sends the client on to the file's bytes, and who keeps
        those knows less.
        """
        for _ in range(self.client.max_redirects):
            response = self.client.send(request, follow_redirects=False)
            if response.next_request is None or "x-linked-size" in response.headers:
                return response
            request = response.next_request
        raise httpx.TooManyRedirects("more redirects than are possible", request=request)


def _warn(note: Note, row: ModelRow) -> None:
    note(
        f"{row.repository} no longer has revision {row.revision[:12]}: its branch main is taken, "
        "whose files may differ from those that were tried"
    )


def _entries(response: httpx.Response) -> list[dict[str, Any]]:
    try:
        entries = response.json()
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list):
        raise ConfigError(
            f"{response.url.host}: answered with something that is not a list of files",
            "set HF_ENDPOINT to another mirror",
        )
    return [entry for entry in entries if isinstance(entry, dict)]


def _facts(entry: dict[str, Any]) -> tuple[str, tuple[int, str]] | None:
    path, size, lfs = entry.get("path"), entry.get("size"), entry.get("lfs")
    whole = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    if entry.get("type") != "file" or not isinstance(path, str) or not whole:
        return None
    assert isinstance(size, int)
    digest = lfs.get("oid") if isinstance(lfs, dict) else ""
    return path, (size, _digest(digest if isinstance(digest, str) else ""))


def _digest(text: str) -> str:
    """The SHA-256 in an ETag or an LFS id; empty for any other tag."""
    text = text.removeprefix("W/").strip('"').removeprefix("sha256:").lower()
    return text if len(text) == 64 and set(text) <= _HEX else ""
