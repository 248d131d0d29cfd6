"""Typed access to the metadata of one architecture, with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from engine.errors import ModelFileError, UnsupportedModelError

_ARCHITECTURES = ("qwen4exp", "qwen35moe")


class Keys:
    """Reads `<architecture>.<key>` values. A key without a default must be there."""

    def __init__(self, metadata: Mapping[str, Any], path: Path) -> None:
        self._metadata = metadata
        self._path = path
        found = metadata.get("general.architecture")
        if found not in _ARCHITECTURES:
            raise UnsupportedModelError(
                f"{path}: general.architecture is {found!r}",
                hint=f"This version runs {' and '.join(_ARCHITECTURES)} models.",
            )
        self.architecture = cast(Literal["qwen4exp", "qwen35moe"], found)
        self.name = str(metadata.get("general.name") or path.stem)

    def integer(self, key: str, default: int | None = None, *, minimum: int = 0) -> int:
        """An integer of at least `minimum`. An array counts when all its entries are equal."""
        value = self._value(key, default)
        entries = np.unique(np.asarray(value))
        if entries.size != 1 or entries.dtype.kind not in "iub" or int(entries[0]) < minimum:
            raise self.unusable(key, value, f"one integer of at least {minimum}")
        return int(entries[0])

    def number(self, key: str, default: float | None = None) -> float:
        """A finite positive float."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.unusable(key, value, "a number")
        if not (np.isfinite(value) and value > 0):
            raise self.unusable(key, value, "a finite number above 0")
        return float(value)

    def integers(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """An array of integers or booleans."""
        value = np.asarray(self._value(key, default))
        if value.size and (value.ndim != 1 or value.dtype.kind not in "iub"):
            raise self.unusable(key, value, "an array of integers")
        return tuple(int(entry) for entry in value)

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
