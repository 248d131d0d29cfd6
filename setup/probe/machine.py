"""What the probe asks of a machine, and the machine that this process runs on."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.host_memory import HostMemory, counted_memory
from engine.switches import this_environment
from engine.system_files import MOST_BYTES, read_system_file
from engine.torch_build import torch_has_cuda

_COMMAND_S = 20
_MOST_NAMES = 4096
# WSL keeps the driver's programs where PATH of a service does not lead.
_MORE_FOLDERS = ("/usr/lib/wsl/lib",)


@dataclass(frozen=True, slots=True)
class Disk:
    """Where models are kept: free bytes, and the device as "major:minor", empty if unknown."""

    free_bytes: int
    device: str


class Machine(Protocol):
    """What the probe asks of a machine. Only `module` may raise."""

    os: str
    release: str
    """The kernel's, in lower case."""
    architecture: str
    environment: Mapping[str, str]

    def read(self, path: str) -> str:
        """The text of a file; empty when it cannot be read."""

    def names(self, folder: str) -> tuple[str, ...]:
        """What a folder holds, sorted; empty when it cannot be listed."""

    def resolve(self, path: str) -> str:
        """Where a path leads after all links; empty when it leads nowhere."""

    def command(self, args: Sequence[str]) -> str:
        """What a command prints; empty when it is missing or fails."""

    def module(self, name: str) -> Any:
        """A Python library that may be missing. Raises whatever importing it raises."""

    def may_use(self, path: str) -> bool:
        """Whether this process may read and write a device file."""

    def disk(self) -> Disk:
        """Where models are kept."""

    def counted_memory(self) -> HostMemory:
        """Memory where the system has no /proc/meminfo."""

    def processors(self) -> tuple[int, ...]:
        """The logical processors that this process may use, by number."""

    def core_count(self) -> int:
        """Physical cores, where the system does not say more; 0: not known."""

    def torch_cuda(self) -> bool:
        """Whether PyTorch, as it is installed, can compute on NVIDIA cards."""


class ThisMachine:
    """The machine that the process runs on. Models are kept in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.os = platform.system().lower()
        self.release = platform.release().lower()
        self.architecture = platform.machine().lower()
        self.environment = this_environment()
        self._folder = folder

    def read(self, path: str) -> str:
        return read_system_file(path)

    def names(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(folder))[:_MOST_NAMES])
        except (OSError, ValueError):
            return ()

    def resolve(self, path: str) -> str:
        return os.path.realpath(path) if os.path.exists(path) else ""

    def command(self, args: Sequence[str]) -> str:
        folders = os.pathsep.join([self.environment.get("PATH", os.defpath), *_MORE_FOLDERS])
        found = shutil.which(args[0], path=folders)
        if found is None:
            return ""
        try:
            done = subprocess.run(
                [found, *args[1:]],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_COMMAND_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        text = done.stdout[:MOST_BYTES].decode("utf-8", errors="replace")
        return text if done.returncode == 0 else ""

    def module(self, name: str) -> Any:
        # amdsmi 7.0 prints on stdout when its library is missing, where our results go.
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module(name)

    def may_use(self, path: str) -> bool:
        return os.access(path, os.R_OK | os.W_OK)

    def disk(self) -> Disk:
        folder = self._folder.absolute()
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            device = os.stat(folder).st_dev
            free = shutil.disk_usage(folder).free
        except OSError:
            return Disk(0, "")
        known = hasattr(os, "major")
        return Disk(free, f"{os.major(device)}:{os.minor(device)}" if known else "")

    def counted_memory(self) -> HostMemory:
        return counted_memory()

    def processors(self) -> tuple[int, ...]:
        if hasattr(os, "sched_getaffinity"):
            return tuple(sorted(os.sched_getaffinity(0)))
        return tuple(range(os.cpu_count() or 1))

    def core_count(self) -> int:
        try:
            import psutil
        except ImportError:
            return 0
        return psutil.cpu_count(logical=False) or 0

    def torch_cuda(self) -> bool:
        return torch_has_cuda()
