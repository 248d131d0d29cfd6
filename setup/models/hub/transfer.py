"""One file from the hub to this disk: as often as the connection breaks, from where it broke."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from engine.errors import ConfigError
from setup.models.disk_space import decimal_size
from setup.models.hub.answers import MissingError, check_status, transport
from setup.models.hub.client import Endpoint
from setup.models.hub.files import RemoteFile
from setup.models.hub.part_file import PartFile, kept_bytes, usable_validator
from setup.models.hub.retry import Pace, TransientError
from setup.models.hub.shown import shown, whole_number
from setup.models.hub.time_limit import ONE_EXCHANGE, TimeLimit

_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)
_MIRROR = "run the same command again; if it stays so, set HF_ENDPOINT to another mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Gets one file. `progress` hears how many bytes of it are on the disk."""

    source: RemoteFile
    endpoint: Endpoint
    client: httpx.Client
    pace: Pace
    progress: Callable[[int], None]

    def run(self, target: Path) -> str:
        """Makes `target` the whole file and returns its SHA-256.

        Raises `ConfigError` when the server refuses it, fails too often, or sends something else:
        a file with a wrong SHA-256 is deleted. Otherwise, and at Ctrl-C, the bytes stay for the
        next run. Raises OSError where the disk does.
        """
        kept = kept_bytes(target, self.source)
        if kept:
            # Told first: the hash of many gigabytes takes a while.
            done, all_ = decimal_size(kept), decimal_size(self.source.size_bytes)
            self.pace.note(f"{self.source.name}: goes on at {done} of {all_}")
        with PartFile(target, self.source) as part:
            self._fill(part)
            self._check_hash(part)
            part.finish()
            return part.digest()

    def _fill(self, part: PartFile) -> None:
        failures, best = 0, part.size
        while part.size < self.source.size_bytes:
            try:
                self._pull(part)
            except TransientError as error:
                # Only bytes that were never there before count as getting on.
                failures = 1 if part.size > best else failures + 1
                best = max(best, part.size)
                self.pace.pause(error, failures, self.pace.limits.attempts, self.source.name)

    def _pull(self, part: PartFile) -> None:
        """One request and its bytes. Raises `TransientError` when it was not the rest."""
        headers = {**self.endpoint.headers(self.source.address), **ONE_EXCHANGE}
        if part.size:
            headers["Range"] = f"bytes={part.size}-"
            if part.validator:
                headers["If-Range"] = part.validator
        host = self.endpoint.host
        with (
            TimeLimit(host, self.pace.limits.question_s) as limit,
            transport(host),
            self.client.stream(
                "GET", self.source.address, headers=headers, extensions=limit.extensions
            ) as response,
        ):
            limit.lift()
            self._accept(response, part)
            for data in response.iter_raw():
                self._append(part, data)
        if part.size < self.source.size_bytes:
            raise TransientError(
                f"the server ended after {part.size} of {self.source.size_bytes} bytes"
            )

    def _append(self, part: PartFile, data: bytes) -> None:
        if part.size + len(data) > self.source.size_bytes:
            part.drop()
            raise self._wrong_size("more than that; what came is deleted")
        part.append(data)
        self.progress(part.size)

    def _accept(self, response: httpx.Response, part: PartFile) -> None:
        """Makes `part` ready for the bytes of an answer, or raises when they are of no use."""
        if response.status_code == 416:
            self._start_over(part, "has no bytes after those that are here")
        try:
            check_status(response, self.source.path, self.endpoint)
        except MissingError as error:
            raise ConfigError(str(error), _MIRROR) from None
        if response.headers.get("content-encoding", "identity") != "identity":
            host = shown(response.url.host)
            raise ConfigError(f"{self.source.path}: {host} sends it encoded", _MIRROR)
        if response.status_code == 206 and part.size:
            self._accept_rest(response, part)
        elif response.status_code == 200:
            self._accept_whole(response, part)
        else:
            raise ConfigError(
                f"{self.source.path}: {shown(response.url.host)} answered with status "
                f"{response.status_code}",
                _MIRROR,
            )

    def _accept_rest(self, response: httpx.Response, part: PartFile) -> None:
        """The answer to a request for a range: it must go on where the file ends."""
        found = _RANGE.fullmatch(response.headers.get("content-range", "").strip())
        if found is None or int(found[1]) != part.size:
            self._start_over(part, "sends another range than it was asked for")
            return
        if found[3] not in ("*", str(self.source.size_bytes)):
            raise self._wrong_size(f"{found[3]} bytes")
        said = validator(response)
        if part.validator and said and said != part.validator:
            self._start_over(part, "has another version of the file now")

    def _accept_whole(self, response: httpx.Response, part: PartFile) -> None:
        length = response.headers.get("content-length")
        if length is not None and whole_number(length) != self.source.size_bytes:
            kind = shown(response.headers.get("content-type", "bytes without a type"), 60)
            raise self._wrong_size(f"{shown(length, 20)} bytes ({kind})")
        if part.size:
            self.pace.note(
                f"{self.source.name}: the server sends the whole file, not the rest: "
                f"{decimal_size(part.size)} are got again"
            )
        part.restart(validator(response))

    def _start_over(self, part: PartFile, why: str) -> None:
        part.restart("")
        raise TransientError(f"the server {why}: the file is got from its start")

    def _wrong_size(self, what: str) -> ConfigError:
        return ConfigError(
            f"{self.source.path}: has {self.source.size_bytes} bytes by the catalogue, but the "
            f"server sends {what}",
            _MIRROR,
        )

    def _check_hash(self, part: PartFile) -> None:
        digest = part.digest()
        if digest == self.source.sha256:
            return
        part.drop()
        raise ConfigError(
            f"{self.source.path}: was received with the SHA-256 {digest}, but "
            f"{self.source.sha256} is the catalogue's: it is deleted",
            _MIRROR,
        )


def validator(response: httpx.Response) -> str:
    """What tells this content from another in `If-Range`: a strong ETag, or a date, or nothing."""
    etag = usable_validator(response.headers.get("etag", ""))
    if etag and not etag.startswith("W/"):
        return etag
    return usable_validator(response.headers.get("last-modified", ""))
