"""A model of two small shards, a hub that has it, and a folder to get it into."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx
import pytest

from engine.errors import ConfigError
from setup.models.catalogue import ModelFile, ModelRow
from setup.models.download import download
from setup.models.hub.client import open_client
from setup.models.hub.retry import Limits
from tests.setup.hub_server import REPOSITORY, REVISION, HubFiles, hub_server, sha256

FIRST = "IQ3_S/m-00001-of-00002.gguf"
SECOND = "IQ3_S/m-00002-of-00002.gguf"
# Trusts nobody, and is made in no time: every server here speaks plain HTTP.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
QUICK = Limits(attempts=4, hub_attempts=3, connect_s=5, stall_s=0.3)


def content(seed: int, size: int) -> bytes:
    """Random bytes that begin as a model does."""
    return (b"GGUF" + Random(seed).randbytes(size))[:size]


def model_files() -> dict[str, bytes]:
    """The first shard has 300,000 bytes, the second 1,000."""
    return {FIRST: content(1, 300_000), SECOND: content(2, 1_000), "README.md": b"text"}


def model_row(contents: Mapping[str, bytes] | None = None, **changes: object) -> ModelRow:
    """A row that names the shards with size and SHA-256."""
    shards = {n: d for n, d in (contents or model_files()).items() if n.endswith(".gguf")}
    values: dict[str, object] = {
        "key": "IQ3_S",
        "family": "qwen",
        "title": "A Model",
        "tag": "iq3_s",
        "architecture": "qwen4exp",
        "download_gb": 0.000301,
        "arena_gb": 50.3,
        "ram_gib": 62.0,
        "layers": 48,
        "experts_per_layer": 512,
        "attention_layers": 12,
        "state_gb": 0.17,
        "repository": REPOSITORY,
        "revision": REVISION,
        "files": tuple(
            ModelFile(path=name, size_bytes=len(data), sha256=sha256(data))
            for name, data in shards.items()
        ),
    }
    return ModelRow(**{**values, **changes})  # type: ignore[arg-type]


def bare(row: ModelRow) -> tuple[ModelFile, ...]:
    """The row's files without size and SHA-256."""
    return tuple(ModelFile(path=file.path) for file in row.files)


@dataclass
class Case:
    """What a test of downloads needs, and what it can look at afterwards."""

    hub: HubFiles
    folder: Path
    row: ModelRow = field(default_factory=model_row)
    limits: Limits = QUICK
    free: int = 10**12
    clock: Callable[[], float] = lambda: 0.0
    notes: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    told: list[tuple[int, int, str]] = field(default_factory=list)
    connect: Callable[[Limits], httpx.Client] = lambda limits: open_client(limits, NO_CERTIFICATES)
    on_bytes: Callable[[int], None] = lambda done: None

    def run(self, **environment: str) -> Path:
        return download(
            self.row,
            self.folder,
            {"HF_ENDPOINT": self.hub.endpoint, **environment},
            self._progress,
            note=self.notes.append,
            limits=self.limits,
            sleep=self.pauses.append,
            clock=self.clock,
            free=lambda folder: self.free,
            connect=self.connect,
        )

    def _progress(self, done_bytes: int, total_bytes: int, file: str) -> None:
        self.told.append((done_bytes, total_bytes, file))
        self.on_bytes(done_bytes)

    def refused(self, *words: str, **environment: str) -> ConfigError:
        """The error of a run, which must hold these words and a hint."""
        with pytest.raises(ConfigError) as caught:
            self.run(**environment)
        for word in words:
            assert word in caught.value.message
        assert caught.value.hint
        return caught.value

    def there(self) -> dict[str, bytes]:
        """All files in the folder."""
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}

    def assert_whole(self) -> None:
        """The model's files and their marks are there, and nothing else."""
        wanted = {file.path: self.hub.files[file.path] for file in self.row.files}
        marks = {
            f"{name}.sha256": f"{sha256(data)}  {Path(name).name}\n".encode()
            for name, data in wanted.items()
        }
        assert self.there() == {**wanted, **marks}


@contextmanager
def running(folder: Path) -> Iterator[Case]:
    with hub_server(HubFiles(files=model_files())) as hub:
        yield Case(hub, folder)
