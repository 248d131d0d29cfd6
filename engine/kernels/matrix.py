"""Weight matrices on a device: integers in few layouts, floats as stored where activations are.

All are re-encoded without loss from what `engine/reference/matrix.py` takes; `form.py` says how
they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.gguf.dequantize import dequantized
from engine.gguf.integer_form import IntegerForm, integer_form
from engine.gguf.limbs import Limbs, limbs_of
from engine.gguf.stored import tensor_of
from engine.gguf.types import QuantType, has_limbs
from engine.kernels.form import (
    CODES,
    FLOAT_TILE,
    GROUP,
    LIMBS,
    QUAD,
    SEGMENT,
    TILE,
    Codes,
    FloatForm,
    Form,
    are_integers,
    form_of,
    laid_out,
)

Array = npt.NDArray[Any]
# Weights that are re-encoded at a time: bounds what lies in memory beside the result.
_CHUNK_ELEMENTS = 1 << 25


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A matrix of `rows` outputs and `columns` inputs, or a stack of E such matrices.

    record: integers uint8 [E, bytes], floats [E, tiles, groups, tile, 32].
    addresses: int64 [E], where each record lies; kernels read a matrix of a stack through them.
    """

    rows: int
    columns: int
    form: Form | FloatForm
    record: torch.Tensor
    addresses: torch.Tensor

    def scaled(self, factors: Array) -> Matrix:
        """Every matrix of the stack times its own factor, float32 [E] (or one for all)."""
        by = torch.from_numpy(np.ascontiguousarray(factors, np.float32)).to(self.record.device)
        by = by.reshape(-1, 1, 1)
        if isinstance(self.form, FloatForm):
            flat = self.record.float().flatten(2) * by
            record = flat.view(self.record.shape)
            return replace(self, record=record, addresses=_addresses(record))
        tiles = self.record.view(len(self.record), -1, 4 * self.form.tile_words(self.quads))
        form, record = _with_scaled(self.form, self.quads, tiles, by)
        return replace(self, form=form, record=record, addresses=_addresses(record))

    @property
    def quads(self) -> int:
        """Runs of four groups of inputs."""
        return -(-self.columns // (GROUP * QUAD))

    @property
    def groups(self) -> int:
        """Groups of inputs."""
        return -(-self.columns // GROUP)

    @property
    def tiles(self) -> int:
        """Tiles of outputs of a matrix of integers."""
        return -(-self.rows // TILE)


def matrix(
    raw: Array | torch.Tensor,
    kind: QuantType,
    columns: int,
    *,
    float_activations: bool,
    device: str,
) -> Matrix:
    """Packs stored rows, uint8 [N, row_bytes] or [E, N, row_bytes], onto a device, perhaps from
    there.

    Quantised types keep their integers, and F32, F16 and BF16 get limbs where groups are whole.
    Where activations stay float all are floats.
    """
    stored = raw if isinstance(raw, torch.Tensor) else tensor_of(np.ascontiguousarray(raw))
    stacked = (stored if stored.ndim == 3 else stored[None]).to(device)
    if not float_activations and are_integers(kind, columns):
        return _integers(stacked, kind, columns)
    return _floats(stacked, kind, columns)


def _addresses(record: torch.Tensor) -> torch.Tensor:
    count = len(record)
    step = record.stride(0) * record.element_size() if count else 0
    first = record.data_ptr()
    return torch.tensor(
        [first + i * step for i in range(count)], dtype=torch.int64, device=record.device
    )


def _chunks(count: int, rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Matrices of a stack and outputs of each: several matrices, or whole tiles of one."""
    step = max(1, _CHUNK_ELEMENTS // max(rows * columns, 1))
    height = max(TILE, _CHUNK_ELEMENTS // columns // TILE * TILE)
    for start in range(0, count, step):
        for first in range(0, max(rows, 1), height):
            yield slice(start, start + step), slice(first, first + height)


def _padded(a: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """Zeros behind the end of an axis, up to `size`."""
    if a.shape[axis] == size:
        return a
    shape = list(a.shape)
    shape[axis] = size - shape[axis]
    return torch.cat((a, a.new_zeros(shape)), axis)


def _floats(raw: torch.Tensor, kind: QuantType, columns: int) -> Matrix:
    count, rows = raw.shape[:2]
    tile, groups = FLOAT_TILE, -(-columns // GROUP)
    tiles = -(-rows // tile)
    stored = {"F16": torch.float16, "BF16": torch.bfloat16}.get(kind.name, torch.float32)
    record = torch.empty((count, tiles, groups, tile, GROUP), dtype=stored, device=raw.device)
    for which, outputs in _chunks(count, rows, columns):
        values = dequantized(raw[which, outputs], kind).to(stored)
        values = _padded(values, 1, -(-values.shape[1] // tile) * tile)
        values = _padded(values, 2, groups * GROUP).unflatten(1, (-1, tile))
        first = outputs.start // tile
        record[which, first : first + values.shape[1]] = values.unflatten(
            3, (groups, GROUP)
        ).transpose(2, 3)
    return Matrix(
        rows, columns, FloatForm(groups, min(16, groups), tile), record, _addresses(record)
    )


def _integers(raw: torch.Tensor, kind: QuantType, columns: int) -> Matrix:
    count, rows = raw.shape[:2]
    tiles = -(-rows // TILE)
    form, record, tile_bytes = None, torch.empty(0), 0
    for which, outputs in _chunks(count, rows, columns):
        own, made = _encoded(raw[which, outputs], kind, columns)
        if form is None:
            form = own
            tile_bytes = 4 * form.tile_words(-(-columns // (GROUP * QUAD)))
            record = raw.new_empty((count, tiles * tile_bytes))
        at = outputs.start // TILE * tile_bytes
        record[which, at : at + made.shape[1]] = made
    assert form is not None
    return Matrix(rows, columns, form, record, _addresses(record))


def _encoded(raw: torch.Tensor, kind: QuantType, columns: int) -> tuple[Form, torch.Tensor]:
    """Rows of matrices, uint8 [E, N, row_bytes], as integers: uint8 [E, bytes]."""
    if has_limbs(kind, columns):
        return LIMBS, _limb_record(limbs_of(dequantized(raw, kind)))
    integers = integer_form(raw, kind)
    form = form_of(
        kind,
        multipliers=_each(integers.multiplier, columns),
        minimum=integers.minimum_scale is not None,
        minimum_multipliers=_each(integers.minimum_multiplier, columns),
    )
    return form, _record(integers, form, CODES[kind.name])


def _each(multiplier: torch.Tensor | None, columns: int) -> int:
    """Multipliers in a group."""
    return 0 if multiplier is None else multiplier.shape[-1] * GROUP // columns


def _tiled(a: torch.Tensor, each: int) -> torch.Tensor:
    """[E, N, each numbers a group] -> [E, T, out, n, quads, 4, each], zeros where there is nothing:
    output 8 * out + n of a tile, four groups of a quad."""
    a = a.view(*a.shape[:2], -1, each)
    a = _padded(_padded(a, 1, -(-a.shape[1] // TILE) * TILE), 2, -(-a.shape[2] // QUAD) * QUAD)
    return a.view(len(a), -1, 2, 8, a.shape[2] // QUAD, QUAD, each)


def _record(integers: IntegerForm, form: Form, codes: Codes) -> torch.Tensor:
    """Matrices as `Form` says: uint8 [E, bytes]."""
    fields = _fields(integers.codes, codes)
    # E, T, out, n, quads, group, half, q, byte
    sections = _planes(_tiled(fields, GROUP).unflatten(-1, (2, 4, 4)), form)
    multipliers = [m for m in (integers.multiplier, integers.minimum_multiplier) if m is not None]
    if multipliers:
        groups = integers.codes.shape[-1] // GROUP
        # E, T, out, n, quads, group, which
        numbers = torch.cat([_tiled(m, m.shape[-1] // groups) for m in multipliers], -1)
        numbers = (numbers.view(torch.uint8) ^ 128).permute(0, 1, 4, 3, 6, 2, 5)
        sections.append(numbers.contiguous())
    scales = [s for s in (integers.scale, integers.minimum_scale) if s is not None]
    return _joined(sections, scales, form)


def _limb_record(limbs: Limbs) -> torch.Tensor:
    """The same of floats."""
    sections = [
        _whole_bytes(_tiled(limb.view(torch.uint8), GROUP).unflatten(-1, (2, 4, 4)))
        for limb in (limbs.high, limbs.low)
    ]
    return _joined(sections, [limbs.scale], LIMBS)


def _joined(sections: list[torch.Tensor], scales: list[torch.Tensor], form: Form) -> torch.Tensor:
    """Sections, quads third, and scales, float32 [E, N, groups]: uint8 [E, bytes]."""
    words = _scale_words(torch.stack([_tiled(s, 1)[..., 0] for s in scales], -1), form)
    tail = [words] if form.tail else []
    if not tail:
        sections = [*sections, words]
    quads = [s.view(torch.uint8).flatten(3) for s in sections]
    tiles = [torch.cat(quads, -1).flatten(2), *(t.view(torch.uint8).flatten(2) for t in tail)]
    return torch.cat(tiles, -1).flatten(1)


def _scale_words(scales: torch.Tensor, form: Form) -> torch.Tensor:
    """float32 [E, T, out, n, quads, group, which] as they lie: by quads, or by segments."""
    if not form.wide:
        scales = (scales / form.factor).half()
    if form.tail:
        # One number of two quads; a segment has two.
        scales = _padded(scales, 4, -(-scales.shape[4] // SEGMENT) * SEGMENT)
        scales = scales[:, :, :, :, ::2, 0].unflatten(4, (-1, 2))
    else:
        scales = scales[..., :: form.span, :]
    # E, T, run, n, which, out, number
    return scales.permute(0, 1, 4, 3, 6, 2, 5).contiguous()


def _fields(codes: torch.Tensor, field: Codes) -> torch.Tensor:
    """int8 codes -> uint8 fields."""
    if not field.table:
        return ((codes >> field.odd) + field.bias).view(torch.uint8) & ((1 << field.bits) - 1)
    index = codes.view(torch.uint8).reshape(-1).int()
    return _field_of(field.table, codes.device).index_select(0, index).view(codes.shape)


@lru_cache(maxsize=16)
def _field_of(table: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """The index of each signed byte in a table, 255 where there is none."""
    index = torch.full((256,), 255, dtype=torch.uint8)
    for i in reversed(range(len(table))):
        index[table[i] & 255] = i
    return index.to(device)


def _planes(fields: torch.Tensor, form: Form) -> list[torch.Tensor]:
    """uint8 fields [E, T, out, n, quads, group, half, q, byte] -> sections, quads third."""
    bits = form.bits
    if bits == 8:
        return [_whole_bytes(fields)]
    if bits == 2:
        return [_low_bits(fields, 2)]
    high = fields >> (bits - 4)
    if form.table:
        ends = torch.cat((high[..., 0, :, :], high[..., 1, :, :]), -1)
        nibbles = ends[..., ::2] | ends[..., 1::2] << 4
    else:
        nibbles = high[..., 0, :, :] | high[..., 1, :, :] << 4
    # E, T, quads, out, n, q, group, byte
    planes = [nibbles.permute(0, 1, 4, 2, 3, 6, 5, 7).contiguous()]
    if bits > 4:
        planes.append(_low_bits(fields & ((1 << (bits - 4)) - 1), bits - 4))
    return planes


def _whole_bytes(fields: torch.Tensor) -> torch.Tensor:
    """[E, T, quads, group, n, q, half, out, byte]"""
    return fields.permute(0, 1, 4, 5, 3, 7, 6, 2, 8).contiguous()


def _low_bits(fields: torch.Tensor, bits: int) -> torch.Tensor:
    """Fields of `bits` bits in words of four groups (1) or two (2), a byte the same inputs of each:
    [E, T, quads, n, q, out, words, byte]."""
    together = fields.unflatten(5, (-1, 4 // bits))
    plane = torch.zeros_like(together[:, :, :, :, :, :, 0, 0])
    for group in range(4 // bits):
        for half in range(2):
            plane |= together[:, :, :, :, :, :, group, half] << (bits * (2 * group + half))
    return plane.permute(0, 1, 4, 3, 6, 2, 5, 7).contiguous()


def _with_scaled(
    form: Form, quads: int, tiles: torch.Tensor, by: torch.Tensor
) -> tuple[Form, torch.Tensor]:
    """Records whose scales are float32 and times `by`, and their form. tiles: uint8 [E, T, bytes],
    by: [E or 1, 1, 1]."""

    def scaled(scales: torch.Tensor) -> torch.Tensor:
        """uint8 [..., bytes]"""
        scales = scales.contiguous()
        values = scales.view(torch.float32 if form.wide else torch.float16).float()
        return (values * form.factor * by.unsqueeze(-1)).view(torch.uint8)

    new = laid_out(form._replace(wide=True, factor=1.0))
    end = 4 * quads * form.quad
    if form.tail:
        tail = scaled(tiles[:, :, end:].unsqueeze(2)).flatten(2)
        return new, torch.cat((tiles[:, :, :end], tail), -1).flatten(1)
    sections = tiles.unflatten(-1, (quads, 4 * form.quad))
    at = 4 * (form.quad - 8 * form.scales)
    parts = (sections[..., :at], scaled(sections[..., at:]))
    return new, torch.cat(parts, -1).flatten(1)
