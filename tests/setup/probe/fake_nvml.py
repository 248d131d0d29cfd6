"""A stand-in for the `pynvml` module: its functions by their real names, with its real errors and
structures, over cards that a test describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pynvml

GIB = 1 << 30
MIB = 1 << 20


def error(code: int) -> Exception:
    """The error that pynvml raises for a code: the subclass that belongs to it."""
    found: Exception = pynvml.NVMLError(code)
    return found


NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
GPU_IS_LOST = pynvml.NVML_ERROR_GPU_IS_LOST
NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION


@dataclass(frozen=True)
class FakeCard:
    """A card. `fails` gives errors by function name without `nvmlDevice`; `parts` are its MIG
    instances, None for a free number. `answers` replaces answers."""

    name: str = "NVIDIA GeForce RTX 5070"
    uuid: str = "GPU-11111111-aaaa-bbbb-cccc-000000000001"
    bus: str = "00000000:01:00.0"
    total: int = 12227 * MIB
    free: int = 11800 * MIB
    capability: tuple[int, int] = (12, 0)
    cores: int = 6144
    clock: int = 3090
    display: bool = False
    link: tuple[int, int] = (5, 16)
    parts: Sequence[FakeCard | None] | None = None
    fails: Mapping[str, Exception] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    lost: int = 0
    """The code of the error that asking for the card raises; 0: none."""


class FakeNvml:
    """The module. `fails` gives errors by full function name."""

    NVMLError = pynvml.NVMLError
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported

    def __init__(
        self,
        *cards: FakeCard,
        driver: str = "580.95.05",
        fails: Mapping[str, Exception] | None = None,
    ) -> None:
        self._cards = cards
        self._driver = driver
        self._fails = fails or {}
        self.open = 0

    def _check(self, function: str) -> None:
        if function in self._fails:
            raise self._fails[function]

    def nvmlInit(self) -> None:  # noqa: N802
        self._check("nvmlInit")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self._check("nvmlShutdown")
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        self._check("nvmlSystemGetDriverVersion")
        return self._driver

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._check("nvmlDeviceGetCount")
        return len(self._cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeCard:  # noqa: N802
        self._check("nvmlDeviceGetHandleByIndex")
        card = self._cards[index]
        if card.lost:
            raise error(card.lost)
        return card

    def __getattr__(self, function: str) -> Any:
        short = function.removeprefix("nvmlDevice")
        if short not in _ANSWERS:
            raise AttributeError(f"module 'pynvml' has no attribute {function!r}")

        def asked(card: FakeCard, *args: Any) -> Any:
            if short in card.fails:
                raise card.fails[short]
            return card.answers[short] if short in card.answers else _ANSWERS[short](card, *args)

        return asked


def _memory(card: FakeCard) -> Any:
    return pynvml.c_nvmlMemory_t(total=card.total, free=card.free, used=card.total - card.free)


def _place(card: FakeCard) -> Any:
    found = pynvml.nvmlPciInfo_t()
    found.busId = card.bus
    return found


def _mig_mode(card: FakeCard) -> list[int]:
    if card.name.startswith("NVIDIA GeForce"):
        raise error(NOT_SUPPORTED)
    on = int(card.parts is not None)
    return [on, on]


def _part(card: FakeCard, index: int) -> FakeCard:
    part = (card.parts or ())[index] if index < len(card.parts or ()) else None
    if part is None:
        raise error(pynvml.NVML_ERROR_NOT_FOUND)
    return part


_ANSWERS: dict[str, Any] = {
    "GetName": lambda card: card.name,
    "GetUUID": lambda card: card.uuid,
    "GetPciInfo": _place,
    "GetMemoryInfo": _memory,
    "GetCudaComputeCapability": lambda card: card.capability,
    "GetNumGpuCores": lambda card: card.cores,
    "GetMaxClockInfo": lambda card, kind: card.clock if kind == pynvml.NVML_CLOCK_SM else 1,
    "GetDisplayActive": lambda card: int(card.display),
    "GetDisplayMode": lambda card: 1,
    "GetComputeMode": lambda card: 0,
    "GetMaxPcieLinkGeneration": lambda card: card.link[0],
    "GetMaxPcieLinkWidth": lambda card: card.link[1],
    "GetMigMode": _mig_mode,
    "GetMaxMigDeviceCount": lambda card: 7,
    "GetMigDeviceHandleByIndex": _part,
    "GetGpuInstanceId": lambda card: card.answers["GetGpuInstanceId"],
    "GetComputeInstanceId": lambda card: 0,
}
EVERY_FUNCTION = (
    "nvmlInit",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    *(f"nvmlDevice{name}" for name in _ANSWERS),
)
