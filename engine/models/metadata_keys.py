"""Typed access to the metadata of one architecture, with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from engine.errors import ModelFileError, UnsupportedModelError

_ARCHITECTURES = ("qwen4exp", "qwen35moe")
# No size of a model is larger, and products of two sizes fit 64 bits.
_LARGEST = 2**31 - 1


class Keys:
    """Reads `<architecture>.<key>` values. A key without a default must be there."""

    def __init__(self, metadata: Mapping[str, Any], path: Path) -> None:
        self._metadata = metadata
        self._path = path
        found = metadata.get("general.architecture")
        if not isinstance(found, str) or found not in _ARCHITECTURES:
            raise UnsupportedModelError(
                f"{path}: general.architecture is {found!r}",
                hint=f"This version runs {' and '.join(_ARCHITECTURES)} models.",
            )
        self.architecture = cast(Literal["qwen4exp", "qwen35moe"], found)
        name = metadata.get("general.name")
        self.name = name if isinstance(name, str) and name else path.stem

    def integer(
        self, key: str, default: int | None = None, *, minimum: int = 0, maximum: int = _LARGEST
    ) -> int:
        """An integer from `minimum` to `maximum`. An array counts if all its entries are equal."""
        value = self._value(key, default)
        entries = set(_integers(value) or ())
        if len(entries) != 1 or not minimum <= min(entries) <= maximum:
            raise self.unusable(key, value, f"one integer from {minimum} to {maximum}")
        return entries.pop()

    def number(self, key: str, default: float | None = None) -> float:
        """A finite positive float."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.unusable(key, value, "a number")
        if not (np.isfinite(value) and value > 0):
            raise self.unusable(key, value, "a finite number above 0")
        return float(value)

    def integers(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """An array of integers from 0 on, or of booleans."""
        value = self._value(key, default)
        entries = None if isinstance(value, int) else _integers(value)
        if entries is None or min(entries, default=0) < 0:
            raise self.unusable(key, value, "an array of integers from 0 on")
        return entries

    def unusable(self, key: str, value: object, allowed: str) -> ModelFileError:
        """The error for a value that cannot be used."""
        return ModelFileError(
            f"{self._path}: {self.architecture}.{key} is {value}, allowed is {allowed}",
            hint="The file is damaged or was converted by a tool that Strata does not know.",
        )

    def _value(self, key: str, default: object) -> Any:
        value = self._metadata.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise ModelFileError(
                f"{self._path}: the metadata has no {self.architecture}.{key}",
                hint="The file is damaged or was converted by a tool that Strata does not know.",
            )
        return value


def _integers(value: Any) -> tuple[int, ...] | None:
    """The integers of a value that is one or an array of them; None for any other value."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, int):
        return (int(value),)
    if isinstance(value, np.ndarray) and value.dtype.kind in "iub":
        return tuple(int(entry) for entry in value)
    return None
