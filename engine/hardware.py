"""What a machine has, as facts. `setup/probe` finds them; a recorded machine is this as JSON."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from engine.control_groups import cpu_limit
from engine.errors import ConfigError
from engine.host_memory import counted_memory, host_memory
from engine.system_files import Reader, read_system_file

BACKENDS: Mapping[str, str] = {"nvidia": "cuda", "amd": "hip"}
"""By maker, what computes on its cards."""

MOST_GPUS = 64
"""Cards of one recording: more than any machine has, few enough to compare each with each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One card. `arch` is a compute capability ("12.0") or a gfx name ("gfx1201").

    Its identity is `uuid`, or `pci_bus_id`: both stay the same whatever is hidden or added.
    """

    index: int
    """The number that the user types: among all cards of this vendor, hidden ones counted, from 0.
    NVIDIA cards in PCI bus order (as nvidia-smi), AMD cards in the order of HIP. It is no identity:
    NVIDIA card 0 and AMD card 0 are two cards, and a new card may move the others."""
    uuid: str
    """The driver's name for it ("GPU-...", "MIG-..."); "PCI-" and the bus id where it has none."""
    pci_bus_id: str
    """As Linux writes it, "0000:01:00.0"."""
    vendor: str
    name: str
    arch: str
    vram_bytes: int
    vram_free_bytes: int
    driver: str
    integrated: bool
    display: bool = False
    """A screen is attached to it."""
    compute_mode: str = ""
    """NVIDIA's word, `Default` where anyone may use the card; empty: not known."""
    link_generation: int = 0
    """The fastest PCI Express generation of card and socket; 0: not known."""
    link_width: int = 0
    """PCI Express lanes; 0: not known."""
    shared_bytes: int = 0
    """Memory of the machine that an integrated GPU may use beside `vram_bytes`, its own."""
    cores: int = 0
    """CUDA cores or stream processors, to compare cards of one vendor; 0: not known."""
    clock_mhz: int = 0
    """The fastest clock of its cores; 0: not known."""

    @property
    def vram_gib(self) -> float:
        """Its own memory in GiB, the unit of setup's rules."""
        return self.vram_bytes / (1 << 30)

    @property
    def backend(self) -> str:
        """What computes on it: cuda or hip; empty for another maker's card."""
        return BACKENDS.get(self.vendor, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor; `cores` counts physical cores."""

    name: str
    cores: int
    avx2: bool
    avx512: bool
    performance_cores: int = 0
    """Fast cores of a hybrid processor; 0: all cores are alike."""
    efficiency_cores: int = 0
    """Slow cores of a hybrid processor."""
    sockets: int = 1
    avx: bool = False
    sse42: bool = False


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
    swap_bytes: int = 0
    memory_limit_bytes: int = 0
    """What a control group allows; 0: no limit. `ram_bytes` already respects it."""
    cpu_limit: float = 0.0
    """Processors that a control group allows; 0: no limit."""
    container: bool = False
    numa_nodes: int = 1
    disk_rotational: bool = False
    """Models lie on a disk that turns."""
    desktop: bool = False
    """Somebody works at a screen of this machine."""
    torch_cuda: bool = True
    """Whether PyTorch as it is installed can compute on NVIDIA cards."""
    notes: tuple[str, ...] = ()
    """What could not be found out, and why."""

    @property
    def ram_gib(self) -> float:
        """Memory in GiB, the unit of setup's rules: a "64 GB" machine has about 63."""
        return self.ram_bytes / (1 << 30)

    def to_json(self) -> dict[str, Any]:
        """The recording that `strata setup --save-probe` writes."""
        record = asdict(self)
        return {**record, "gpus": list(record["gpus"]), "notes": list(self.notes)}

    @classmethod
    def from_json(cls, data: object) -> Hardware:
        """A recording read back; `ConfigError` names a missing key or a wrong type.

        Facts with a default may be missing, and what is not known here is left out.
        """
        record = _mapping(data, "the recording")
        gpus = record.get("gpus", [])
        if not isinstance(gpus, list):
            raise ConfigError(f"recorded hardware: gpus is {gpus!r:.80}, not a list")
        if len(gpus) > MOST_GPUS:
            raise ConfigError(
                f"recorded hardware: gpus has {len(gpus)} cards, {MOST_GPUS} are the most",
                "record a machine with `strata setup --save-probe FILE`",
            )
        return cls(
            gpus=tuple(Gpu(**_typed(Gpu, g, f"gpus[{i}].")) for i, g in enumerate(gpus)),
            cpu=Cpu(**_typed(Cpu, record.get("cpu"), "cpu.")),
            **_typed(cls, record, "", skip=("gpus", "cpu")),
        )


_TYPES: dict[str, Callable[[object], bool]] = {
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0,
    "str": lambda v: isinstance(v, str),
    "bool": lambda v: isinstance(v, bool),
    "float": lambda v: isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v < 1e18,
    "tuple[str, ...]": lambda v: isinstance(v, list) and all(isinstance(x, str) for x in v),
}
_WORDS = {
    "int": "a whole number from 0",
    "str": "a text",
    "bool": "true or false",
    "float": "a number from 0",
    "tuple[str, ...]": "a list of texts",
}


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
        if field.name not in record and field.default is not MISSING:
            continue
        value = record.get(field.name)
        if not _TYPES[str(field.type)](value):
            raise ConfigError(
                f"recorded hardware: {where}{field.name} is {value!r:.80}, "
                f"not {_WORDS[str(field.type)]}",
                "record a machine with `strata setup --save-probe FILE`",
            )
        values[field.name] = tuple(value) if isinstance(value, list) else value
    return values


def local_hardware(folder: Path, read: Reader = read_system_file) -> Hardware:
    """This machine's memory and cores, without its cards: enough to plan an engine on the CPU.

    Models are kept in `folder`; `read` gives the texts of /proc and /sys.
    """
    import psutil

    memory = host_memory(read, counted_memory)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    physical = psutil.cpu_count(logical=False) or 1
    return Hardware(
        gpus=(),
        ram_bytes=memory.total_bytes,
        ram_available_bytes=memory.available_bytes,
        swap_bytes=memory.swap_bytes,
        memory_limit_bytes=memory.limit_bytes,
        cpu=Cpu(
            name=platform.processor() or platform.machine(),
            cores=min(physical, usable) if usable else physical,
            avx2=False,
            avx512=False,
        ),
        cpu_limit=cpu_limit(read, usable or os.cpu_count() or 1),
        disk_free_bytes=shutil.disk_usage(folder).free,
        os=platform.system().lower(),
        wsl=False,
    )
