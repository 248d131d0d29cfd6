"""What a machine has, as facts. `setup/probe.py` finds them; a recorded machine is this as JSON."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from engine.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One card. `arch` is a compute capability ("12.0") or a gfx name ("gfx1201")."""

    index: int
    uuid: str
    pci_bus_id: str
    vendor: str
    name: str
    arch: str
    vram_bytes: int
    vram_free_bytes: int
    driver: str
    integrated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor; `cores` counts physical cores."""

    name: str
    cores: int
    avx2: bool
    avx512: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One machine."""

    gpus: tuple[Gpu, ...]
    ram_bytes: int
    ram_available_bytes: int
    cpu: Cpu
    disk_free_bytes: int
    os: str
    wsl: bool

    def to_json(self) -> dict[str, Any]:
        """The recording that `strata setup --save-probe` writes."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> Hardware:
        """A recording read back; `ConfigError` names a missing key or a wrong type."""
        record = _mapping(data, "the recording")
        gpus = record.get("gpus", [])
        if not isinstance(gpus, list):
            raise ConfigError(f"recorded hardware: gpus is {gpus!r}, not a list")
        return cls(
            gpus=tuple(Gpu(**_typed(Gpu, g, f"gpus[{i}].")) for i, g in enumerate(gpus)),
            cpu=Cpu(**_typed(Cpu, record.get("cpu"), "cpu.")),
            **_typed(cls, record, "", skip=("gpus", "cpu")),
        )


_TYPES: dict[str, Callable[[object], bool]] = {
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0,
    "str": lambda v: isinstance(v, str),
    "bool": lambda v: isinstance(v, bool),
}
_WORDS = {"int": "a whole number from 0", "str": "a text", "bool": "true or false"}


def _mapping(data: object, what: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise ConfigError(
            f"recorded hardware: {what.rstrip('.')} is not a JSON object",
            "record a machine with `strata setup --save-probe FILE`",
        )
    return data


def _typed(cls: type, data: object, where: str, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    record = _mapping(data, where or "the recording")
    values: dict[str, Any] = {}
    for field in fields(cls):
        if field.name in skip:
            continue
        value = record.get(field.name)
        if not _TYPES[str(field.type)](value):
            raise ConfigError(
                f"recorded hardware: {where}{field.name} is {value!r}, "
                f"not {_WORDS[str(field.type)]}",
                "record a machine with `strata setup --save-probe FILE`",
            )
        values[field.name] = value
    return values


def local_hardware(folder: Path) -> Hardware:
    """This machine's memory and cores, without its cards: enough to plan an engine on the CPU."""
    import psutil

    memory = psutil.virtual_memory()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    physical = psutil.cpu_count(logical=False) or 1
    return Hardware(
        gpus=(),
        ram_bytes=memory.total,
        ram_available_bytes=memory.available,
        cpu=Cpu(
            name=platform.processor() or platform.machine(),
            cores=min(physical, usable) if usable else physical,
            avx2=False,
            avx512=False,
        ),
        disk_free_bytes=shutil.disk_usage(folder).free,
        os=platform.system().lower(),
        wsl=False,
    )
