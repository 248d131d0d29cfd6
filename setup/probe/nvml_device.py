"""One device of NVML, and what it does and does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from setup.probe.notes import plain, reason

_MOST_INSTANCES = 8


class NvmlDevice:
    """Asks NVML about one device, and remembers what it did not answer."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self.errors: dict[str, Exception] = {}

    def ask(self, function: str, *args: Any) -> Any:
        """The answer of `nvmlDevice...`; None where there is none."""
        try:
            return getattr(self._nvml, f"nvmlDevice{function}")(self._handle, *args)
        except Exception as error:  # NVML has some 30 error classes; ctypes and OS errors come too.
            self.errors[function] = error
            return None

    def number(self, function: str, *args: Any) -> int:
        """A number from 0; 0 where there is no answer."""
        return count(self.ask(function, *args))

    def text(self, function: str) -> str:
        return words(self.ask(function))

    def not_supported(self, function: str) -> bool:
        """Whether NVML said that this device has no such thing."""
        kind = getattr(self._nvml, "NVMLError_NotSupported", ())
        return isinstance(self.errors.get(function), kind)

    def parts(self) -> Iterator[NvmlDevice]:
        """The MIG instances of the card; there are gaps between their numbers."""
        for i in range(min(self.number("GetMaxMigDeviceCount"), _MOST_INSTANCES)):
            handle = self.ask("GetMigDeviceHandleByIndex", i)
            if handle is not None:
                yield NvmlDevice(self._nvml, handle)

    def why(self, function: str = "") -> str:
        """The error of a function, or the first error so far, in words."""
        error = self.errors.get(function) or next(iter(self.errors.values()), None)
        return "no answer" if error is None else reason(error)


def count(value: object) -> int:
    """A number from 0 below 2^63; 0 for anything else."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value < 1 << 63 else 0


def words(value: object) -> str:
    """A text on one line; older versions of pynvml give bytes."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="replace")
    return plain(value) if isinstance(value, str) else ""
