"""Weight matrices as the CPU reads them: exact integers for quantised types, two limbs of integers
for floats, float32 for the rest.

All lie in tiles of 32 outputs, so that the loops run over neighbouring outputs and split no sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.gguf.dequantize import dequantize
from engine.gguf.integer_form import integer_form
from engine.gguf.limbs import limbs_of
from engine.gguf.stored import tensor_of
from engine.gguf.types import QuantType, has_limbs

TILE = 32
NARROW_TILE = 8
# The index of a matrix that is no stack; a plain 0 would be compiled as a case of its own.
ONLY: Any = np.int64(0)
GROUP = 32

Array = npt.NDArray[Any]

# Types without integers under one scale a group: NVFP4 has a float scale for 16 elements.
_FLOAT_TYPES = frozenset({"F32", "F16", "BF16", "NVFP4"})


class Matrix(NamedTuple):
    """A matrix of `rows` outputs and `columns` inputs, or a stack of E such matrices.

    T = ceil(rows / 32) tiles, G = columns / 32 groups. A quantised matrix has
    codes int8 [E, T, G, 32, 32] (element, output) and scale float32 [E, T, G, 32];
    low, shaped like codes: the second limb, without tiles: there is none;
    multiplier int8 [E, T, G, 2, 32] for each half of a group, without tiles: all 1;
    minimum_scale float32 [E, T, G, 32] and minimum_multiplier int8 [E, T, G, 2, 32], without tiles:
    the type has no minima. Any other has only values, float32 [E, T, columns, 32], or in tiles of 8
    outputs when it has no more.
    """

    rows: int
    columns: int
    codes: Array
    low: Array
    scale: Array
    multiplier: Array
    minimum_scale: Array
    minimum_multiplier: Array
    values: Array

    def scaled(self, factors: Array) -> Matrix:
        """Every matrix of the stack times its own factor, float32 [E] (or one for all)."""
        by = factors.reshape(-1, 1, 1, 1)
        return self._replace(
            scale=self.scale * by,
            minimum_scale=self.minimum_scale * by,
            values=self.values * by,
        )


def matrix(raw: Array, kind: QuantType, columns: int, *, float_activations: bool) -> Matrix:
    """Packs stored rows, uint8 [N, row_bytes] or [E, N, row_bytes].

    Quantised types keep their integers, and F32, F16 and BF16 get limbs where groups are whole.
    Where activations stay float all are dequantised.
    """
    stacked = raw if raw.ndim == 3 else raw[None]
    count, rows = stacked.shape[:2]
    if has_limbs(kind, columns) and not float_activations:
        return _limbs(stacked, kind, columns)
    if float_activations or kind.name in _FLOAT_TYPES:
        width = NARROW_TILE if rows <= NARROW_TILE else TILE
        values = _tiles(dequantize(stacked, kind), width).swapaxes(2, 3)
        return Matrix(rows, columns, *_no_integers(count), np.ascontiguousarray(values))
    form = integer_form(tensor_of(np.ascontiguousarray(stacked)), kind)
    *_, multiplier, minimum_scale, minimum_multiplier = _no_integers(count)
    if form.multiplier is not None:
        multiplier = _halves(form.multiplier.numpy(), columns)
    if form.minimum_scale is not None:
        minimum_scale = _groups(form.minimum_scale.numpy())
        ones = np.ones(form.minimum_scale.shape, np.int8)
        given = form.minimum_multiplier
        minimum_multiplier = _halves(ones if given is None else given.numpy(), columns)
    return Matrix(
        rows,
        columns,
        _elements(form.codes.numpy()),
        np.zeros((count, 0, 0, GROUP, TILE), np.int8),
        _groups(form.scale.numpy()),
        multiplier,
        minimum_scale,
        minimum_multiplier,
        np.zeros((count, 0, columns, TILE), np.float32),
    )


def _limbs(stacked: Array, kind: QuantType, columns: int) -> Matrix:
    count, rows = stacked.shape[:2]
    limbs = limbs_of(torch.from_numpy(dequantize(stacked, kind)))
    return Matrix(
        rows,
        columns,
        _elements(limbs.high.numpy()),
        _elements(limbs.low.numpy()),
        _groups(limbs.scale.numpy()),
        *_no_integers(count)[3:],
        np.zeros((count, 0, columns, TILE), np.float32),
    )


def _no_integers(count: int) -> tuple[Array, Array, Array, Array, Array, Array]:
    """The integer arrays of a matrix that has none: no tiles."""
    return (
        np.zeros((count, 0, 0, GROUP, TILE), np.int8),
        np.zeros((count, 0, 0, GROUP, TILE), np.int8),
        np.zeros((count, 0, 0, TILE), np.float32),
        np.zeros((count, 0, 0, 2, TILE), np.int8),
        np.zeros((count, 0, 0, TILE), np.float32),
        np.zeros((count, 0, 0, 2, TILE), np.int8),
    )


def _tiles(values: Array, width: int = TILE) -> Array:
    """[E, N, ...] -> [E, T, width, ...], with zeros for the outputs that the last tile lacks."""
    experts, rows = values.shape[:2]
    tiles = -(-rows // width)
    padded = np.zeros((experts, tiles * width, *values.shape[2:]), values.dtype)
    padded[:, :rows] = values
    return padded.reshape(experts, tiles, width, *values.shape[2:])


def _elements(codes: Array) -> Array:
    """int8 [E, N, K] -> [E, T, G, 32, 32]."""
    tiles = _tiles(codes.reshape(*codes.shape[:2], -1, GROUP))
    return np.ascontiguousarray(tiles.transpose(0, 1, 3, 4, 2))


def _groups(scale: Array) -> Array:
    return np.ascontiguousarray(_tiles(scale.astype(np.float32)).swapaxes(2, 3))


def _halves(multiplier: Array, columns: int) -> Array:
    if multiplier.shape[-1] == columns // GROUP:
        multiplier = np.repeat(multiplier, 2, axis=-1)
    halves = _tiles(multiplier.reshape(*multiplier.shape[:2], -1, 2))
    return np.ascontiguousarray(halves.transpose(0, 1, 3, 4, 2))
