"""Weight matrices as the CPU reads them: exact integers for quantised types, float32 for the rest.

Both lie in tiles of 32 outputs, so that the loops run over neighbouring outputs and never split a sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.gguf.dequantize import dequantize
from engine.gguf.integer_form import integer_form
from engine.gguf.types import QuantType

TILE = 32
GROUP = 32

Array = npt.NDArray[Any]

# Types without integers under one scale a group: NVFP4 has a float scale for 16 elements.
_FLOAT_TYPES = frozenset({"F32", "F16", "BF16", "NVFP4"})


@dataclass(frozen=True, slots=True, eq=False)
class IntegerMatrix:
    """A quantised matrix, or E of them. T = ceil(rows / 32) tiles, G = columns / 32 groups.

    codes int8 [E, T, G, 32, 32] (element, output), scale float32 [E, T, G, 32];
    multiplier int8 [E, T, G, 2, 32] for each half of a group, or [E, 0, 0, 2, 32]: all 1;
    minimum_scale float32 [E, T, G, 32] and minimum_multiplier int8 [E, T, G, 2, 32], or without
    tiles: the type has no minima.
    """

    rows: int
    columns: int
    codes: Array
    scale: Array
    multiplier: Array
    minimum_scale: Array
    minimum_multiplier: Array

    def scaled(self, factors: Array) -> IntegerMatrix:
        """Every matrix of the stack times its own factor, float32 [E] (or one for all)."""
        by = factors.reshape(-1, 1, 1, 1)
        return replace(self, scale=self.scale * by, minimum_scale=self.minimum_scale * by)


@dataclass(frozen=True, slots=True, eq=False)
class FloatMatrix:
    """A float32 matrix, or E of them: values float32 [E, T, columns, 32 outputs]."""

    rows: int
    columns: int
    values: Array

    def scaled(self, factors: Array) -> FloatMatrix:
        """Every matrix of the stack times its own factor, float32 [E] (or one for all)."""
        return replace(self, values=self.values * factors.reshape(-1, 1, 1, 1))


Matrix = IntegerMatrix | FloatMatrix


def matrix(raw: Array, kind: QuantType, columns: int, *, float_activations: bool) -> Matrix:
    """Packs stored rows, uint8 [N, row_bytes] or [E, N, row_bytes].

    Quantised types keep their integers, unless activations stay float: then they are dequantised,
    as F32, F16 and BF16 always are. NVFP4 is too: its scale a 16 elements is no integer multiple.
    """
    stacked = raw if raw.ndim == 3 else raw[None]
    rows = stacked.shape[1]
    if float_activations or kind.name in _FLOAT_TYPES:
        values = dequantize(stacked, kind)
        return FloatMatrix(rows, columns, np.ascontiguousarray(_tiles(values).swapaxes(2, 3)))
    form = integer_form(stacked, kind)
    codes = form.codes.reshape(*form.codes.shape[:2], -1, GROUP)
    return IntegerMatrix(
        rows,
        columns,
        np.ascontiguousarray(_tiles(codes).transpose(0, 1, 3, 4, 2)),
        _groups(form.scale, rows_of=codes),
        _halves(form.multiplier, columns, rows_of=codes),
        _groups(form.minimum_scale, rows_of=codes),
        _halves(
            _minimum_multiplier(form.minimum_scale, form.minimum_multiplier), columns, rows_of=codes
        ),
    )


def _tiles(values: Array) -> Array:
    """[E, N, ...] -> [E, T, 32, ...], with zeros for the outputs that the last tile lacks."""
    experts, rows = values.shape[:2]
    tiles = -(-rows // TILE)
    padded = np.zeros((experts, tiles * TILE, *values.shape[2:]), values.dtype)
    padded[:, :rows] = values
    return padded.reshape(experts, tiles, TILE, *values.shape[2:])


def _groups(scale: Array | None, *, rows_of: Array) -> Array:
    if scale is None:
        return np.zeros((len(rows_of), 0, 0, TILE), np.float32)
    return np.ascontiguousarray(_tiles(scale.astype(np.float32)).swapaxes(2, 3))


def _halves(multiplier: Array | None, columns: int, *, rows_of: Array) -> Array:
    if multiplier is None:
        return np.zeros((len(rows_of), 0, 0, 2, TILE), np.int8)
    if multiplier.shape[-1] == columns // GROUP:
        multiplier = np.repeat(multiplier, 2, axis=-1)
    halves = _tiles(multiplier.reshape(*multiplier.shape[:2], -1, 2))
    return np.ascontiguousarray(halves.transpose(0, 1, 3, 4, 2))


def _minimum_multiplier(scale: Array | None, multiplier: Array | None) -> Array | None:
    """The multipliers of minima: 1 where a type has minima without any."""
    if scale is None or multiplier is not None:
        return multiplier
    return np.ones(scale.shape, np.int8)
