"""Keys and values of every slot, indexed by position, in one of three formats.

f32 stores the values; fp16 rounds them; int8 stores codes with one fp16 scale for up to 64 values:
scale = fp16(amax / 127), code = value / scale rounded half to even, within -127..127.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from engine.reference.compiled import compiled
from engine.reference.matrix import Array
from engine.rows import Rows

KvKind = Literal["f32", "fp16", "int8"]

SCALE_VALUES = 64
# fp16 bits to float32: the compiled loops know no half precision.
HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


class Cells(NamedTuple):
    """Vectors [S, context, H, K] by slot, position and head. One of `floats`, `halves` (fp16 bits)
    and `codes` has that shape, the others have no slots; `scales` (fp16 bits, [S, context, H,
    ceil(K / 64)]) belongs to the codes;
    `half` turns fp16 bits into float32."""

    floats: Array
    halves: Array
    codes: Array
    scales: Array
    half: Array

    @classmethod
    def empty(cls, kind: KvKind, slots: int, context: int, heads: int, length: int) -> Cells:
        """Room for all slots. Pages are taken from the system when they are first written."""
        groups = -(-length // SCALE_VALUES)

        def room(used: KvKind, dtype: type, width: int) -> Array:
            return np.zeros((slots if kind == used else 0, context, heads, width), dtype)

        return cls(
            room("f32", np.float32, length),
            room("fp16", np.uint16, length),
            room("int8", np.int8, length),
            room("int8", np.uint16, groups),
            HALF,
        )


@dataclass(frozen=True, slots=True, eq=False)
class KvCache:
    """The keys and values of one attention layer."""

    keys: Cells
    values: Cells

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The memory of all slots, [S, context, H, ...] each; fp16 bits as int16."""
        arrays = [array for cells in (self.keys, self.values) for array in cells[:4] if array.size]
        bits = [array.view(np.int16) if array.dtype == np.uint16 else array for array in arrays]
        return [torch.from_numpy(array) for array in bits]

    @classmethod
    def empty(
        cls, kind: KvKind, slots: int, context: int, heads: int, key_length: int, value_length: int
    ) -> KvCache:
        """Room for all slots."""
        return cls(
            Cells.empty(kind, slots, context, heads, key_length),
            Cells.empty(kind, slots, context, heads, value_length),
        )


def store(cells: Cells, x: torch.Tensor, rows: Rows) -> None:
    """Writes float32 [R, H, K] at every row's slot and position."""
    at = rows.slots.numpy(), rows.positions.numpy()
    array = x.numpy()
    if cells.codes.size:
        cells.codes[at], cells.scales[at] = quantise_cells(array)
    elif cells.halves.size:
        with np.errstate(over="ignore"):
            cells.halves[at] = array.astype(np.float16).view(np.uint16)
    else:
        cells.floats[at] = array


def quantise_cells(x: Array) -> tuple[Array, Array]:
    """int8 codes [R, H, K] and the fp16 scales' bits [R, H, ceil(K / 64)] of float32 vectors."""
    length = x.shape[-1]
    amax = np.maximum.reduceat(np.abs(x), np.arange(0, length, SCALE_VALUES), axis=-1)
    with np.errstate(over="ignore"):
        scales = (amax / np.float32(127)).astype(np.float16)
    wide = np.repeat(scales.astype(np.float32), SCALE_VALUES, axis=-1)[..., :length]
    # Where the scale is not finite it alone carries that on.
    ratio = np.divide(x, wide, out=np.zeros_like(x), where=(wide > 0) & np.isfinite(wide))
    codes = np.clip(np.rint(ratio), -127, 127).astype(np.int8)
    return codes, scales.view(np.uint16)


@compiled
def read(cells: Any, slot: int, cell: int, head: int, out: Any) -> None:
    """out = the stored vector as float32 [K]."""
    if cells.codes.shape[0]:
        vector = cells.codes[slot, cell, head]
        factors = cells.scales[slot, cell, head]
        for k in range(out.size):
            out[k] = np.float32(vector[k]) * cells.half[factors[k // SCALE_VALUES]]
    elif cells.halves.shape[0]:
        bits = cells.halves[slot, cell, head]
        for k in range(out.size):
            out[k] = cells.half[bits[k]]
    else:
        out[:] = cells.floats[slot, cell, head]
