"""Machines made of recorded texts: what the probe reads of a machine, without the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.host_memory import HostMemory
from setup.probe.machine import Disk


@dataclass
class Recorded:
    """A machine whose files, links, commands and libraries are given.

    A folder exists when a file in it does. `modules` gives a library, or the error of its import.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    numbers: Sequence[int] = range(8)
    os: str = "linux"
    release: str = "6.14.0-36-generic"
    architecture: str = "x86_64"
    device: str = "259:2"
    forbidden: Sequence[str] = ()
    cuda: bool = True

    def read(self, path: str) -> str:
        return self.files.get(self._real(path), "")

    def _real(self, path: str) -> str:
        for link, target in self.links.items():
            if path == link or path.startswith(f"{link}/"):
                return target + path[len(link) :]
        return path

    def names(self, folder: str) -> tuple[str, ...]:
        prefix = f"{self._real(folder).rstrip('/')}/"
        paths = [*self.files, *self.links]
        found = {path[len(prefix) :].split("/")[0] for path in paths if path.startswith(prefix)}
        return tuple(sorted(found))

    def resolve(self, path: str) -> str:
        return self.links.get(path, "")

    def command(self, args: Sequence[str]) -> str:
        return self.commands.get(args[0], "")

    def module(self, name: str) -> Any:
        found = self.modules.get(name, ModuleNotFoundError(f"No module named {name!r}"))
        if isinstance(found, Exception):
            raise found
        return found

    def may_use(self, path: str) -> bool:
        return path not in self.forbidden

    def disk(self) -> Disk:
        return Disk(500_000_000_000, self.device)

    def counted_memory(self) -> HostMemory:
        return HostMemory(7, 3, 1)

    def processors(self) -> tuple[int, ...]:
        return tuple(self.numbers)

    def core_count(self) -> int:
        return 4

    def torch_cuda(self) -> bool:
        return self.cuda


def folder(path: str, **texts: object) -> dict[str, str]:
    """Files of one folder, by their names; a line end is added as the kernel does."""
    return {f"{path}/{name}": f"{text}\n" for name, text in texts.items()}
