"""Weight matrices on a device: the integers of quantised types in few layouts, floats as stored.

Both are re-encoded without loss from what `engine/reference/matrix.py` takes; `form.py` says how
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
from engine.gguf.stored import tensor_of
from engine.gguf.types import QuantType
from engine.kernels.form import (
    CODES,
    FLOAT_TILE,
    FLOAT_TYPES,
    GROUP,
    STEP,
    TILE,
    Codes,
    FloatForm,
    Form,
    form_of,
)

Array = npt.NDArray[Any]
# Weights that are re-encoded at a time: bounds what lies in memory beside the result.
_CHUNK_ELEMENTS = 1 << 26


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A matrix of `rows` outputs and `columns` inputs, or a stack of E such matrices.

    record: integers uint8 [E, tiles * tile_bytes], floats [E, tiles, groups, tile, 32].
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
        tiles = self.record.view(len(self.record), -1, self.form.tile_bytes)
        form, record = _with_scaled(self.form, tiles, by)
        return replace(self, form=form, record=record, addresses=_addresses(record))


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

    Quantised types keep their integers, unless activations stay float: then they are dequantised,
    as F32, F16 and BF16 always are.
    """
    stored = raw if isinstance(raw, torch.Tensor) else tensor_of(np.ascontiguousarray(raw))
    stacked = (stored if stored.ndim == 3 else stored[None]).to(device)
    if float_activations or kind.name in FLOAT_TYPES:
        return _floats(stacked, kind, columns)
    return _integers(stacked, kind, columns)


def _addresses(record: torch.Tensor) -> torch.Tensor:
    count = len(record)
    step = record.stride(0) * record.element_size() if count else 0
    first = record.data_ptr()
    return torch.tensor(
        [first + i * step for i in range(count)], dtype=torch.int64, device=record.device
    )


def _chunks(count: int, elements: int) -> Iterator[slice]:
    step = max(1, _CHUNK_ELEMENTS // max(elements, 1))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


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
    for part in _chunks(count, rows * columns):
        values = dequantized(raw[part], kind).to(stored)
        values = _padded(_padded(values, 1, tiles * tile), 2, groups * GROUP)
        record[part] = values.view(-1, tiles, tile, groups, GROUP).transpose(2, 3)
    return Matrix(
        rows, columns, FloatForm(groups, min(16, groups), tile), record, _addresses(record)
    )


def _integers(raw: torch.Tensor, kind: QuantType, columns: int) -> Matrix:
    count, rows = raw.shape[:2]
    tiles = -(-rows // TILE)
    form, record = None, torch.empty(0)
    for part in _chunks(count, rows * columns):
        integers = integer_form(raw[part], kind)
        if form is None:
            form = form_of(
                kind,
                columns,
                multipliers=_each(integers.multiplier, columns),
                minimum=integers.minimum_scale is not None,
                minimum_multipliers=_each(integers.minimum_multiplier, columns),
            )
            record = raw.new_empty((count, tiles * form.tile_bytes))
        sections = _sections(integers, form, CODES[kind.name])
        record[part] = torch.cat(sections, 2).flatten(1)
    assert form is not None
    return Matrix(rows, columns, form, record, _addresses(record))


def _each(multiplier: torch.Tensor | None, columns: int) -> int:
    """Multipliers in a group."""
    return 0 if multiplier is None else multiplier.shape[-1] * GROUP // columns


def _tiled(values: torch.Tensor, groups: int, padded: int) -> torch.Tensor:
    """[E, N, a number a group] -> [E, T, padded, ..., 32 outputs], zeros where there is nothing."""
    a = values.view(*values.shape[:2], groups, -1)
    a = _padded(_padded(a, 1, -(-a.shape[1] // TILE) * TILE), 2, padded)
    return a.view(len(a), -1, TILE, padded, a.shape[-1]).permute(0, 1, 3, 4, 2)


def _sections(integers: IntegerForm, form: Form, codes: Codes) -> list[torch.Tensor]:
    """The sections of every tile, uint8 [E, T, bytes] each, in the order of `Form`."""
    fields = _fields(integers.codes, codes)
    planes = _tiled(fields, form.groups, form.padded).transpose(3, 4)
    sections = _planes(planes, form.bits)
    for multiplier, scale in (
        (integers.multiplier, integers.scale),
        (integers.minimum_multiplier, integers.minimum_scale),
    ):
        if multiplier is not None:
            sections.append(_multiplier_words(multiplier, form))
        if scale is not None:
            tiled = _tiled(scale, form.groups, form.padded)[:, :, :: form.span, 0]
            sections.append(_scale_words(tiled, form))
    return [s.contiguous().flatten(2).view(torch.uint8) for s in sections]


def _fields(codes: torch.Tensor, field: Codes) -> torch.Tensor:
    """int8 codes -> uint8 fields."""
    if field.bits == 8:
        return codes.view(torch.uint8)
    if not field.table:
        return (codes + field.offset).view(torch.uint8) // field.step
    index = codes.view(torch.uint8).reshape(-1).int()
    return _field_of(field.table, codes.device).index_select(0, index).view(codes.shape)


@lru_cache(maxsize=16)
def _field_of(table: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """The index of each signed byte in a table, 255 where there is none."""
    index = torch.full((256,), 255, dtype=torch.uint8)
    for i in reversed(range(len(table))):
        index[table[i] & 255] = i
    return index.to(device)


def _planes(fields: torch.Tensor, bits: int) -> list[torch.Tensor]:
    """uint8 fields [E, T, G, 32 outputs, 32 elements] -> one or two planes."""
    low, high = fields[..., :16], fields[..., 16:]
    if bits == 8:
        return [torch.stack((low, high), 3)]
    if bits == 2:
        return [_woven(low, high, 2)]
    planes = [(low & 15) | (high & 15) << 4]
    if bits > 4:
        planes.append(_woven(low >> 4, high >> 4, bits - 4))
    return planes


def _woven(low: torch.Tensor, high: torch.Tensor, bits: int) -> torch.Tensor:
    """Fields of neighbouring groups in one byte, the first group lowest: [E, T, G / n, 32, 16]."""
    groups = 4 // bits
    plane = torch.zeros_like(low[:, :, ::groups])
    for i in range(groups):
        plane |= low[:, :, i::groups] << (2 * bits * i)
        plane |= high[:, :, i::groups] << (2 * bits * i + bits)
    return plane


def _multiplier_words(multiplier: torch.Tensor, form: Form) -> torch.Tensor:
    """Four groups in a word: [E, T, each, G / 4, 32 outputs, 4]."""
    tiled = _tiled(multiplier, form.groups, form.padded)
    quads = tiled.reshape(*tiled.shape[:2], form.padded // STEP, STEP, -1, TILE)
    return quads.permute(0, 1, 4, 2, 5, 3)


def _scale_words(scale: torch.Tensor, form: Form) -> torch.Tensor:
    """float32 [E, T, scales, 32] as they are, or as fp16, two neighbours in a word."""
    if form.wide:
        return scale.float()
    half = (scale / form.factor).half()
    half = _padded(half, 2, -(-half.shape[2] // 2) * 2)
    return half.view(*half.shape[:2], -1, 2, TILE).transpose(3, 4)


def _with_scaled(form: Form, tiles: torch.Tensor, by: torch.Tensor) -> tuple[Form, torch.Tensor]:
    """Records whose scales are float32 and times `by`, and their form."""
    scales = -(-form.padded // form.span)
    size = 4 * TILE * (scales if form.wide else -(-scales // 2))

    def section(at: int) -> torch.Tensor:
        words = tiles[:, :, at : at + size].contiguous()
        if form.wide:
            values = words.view(torch.float32).view(*words.shape[:2], scales, TILE)
        else:
            pairs = words.view(torch.float16).view(*words.shape[:2], -1, TILE, 2)
            values = pairs.transpose(3, 4).flatten(2, 3)[:, :, :scales].float() * form.factor
        scaled = values.flatten(2) * by
        return scaled.view(torch.uint8)

    before = tiles[:, :, : form.at_scale]
    between = tiles[:, :, form.at_scale + size : form.at_minimum_scale]
    parts = [before, section(form.at_scale), between]
    if form.minimum:
        parts.append(section(form.at_minimum_scale))
    grown = 4 * TILE * scales - size
    new = form._replace(
        wide=True,
        factor=1.0,
        at_minimum_multiplier=form.at_minimum_multiplier + grown,
        at_minimum_scale=form.at_minimum_scale + grown,
        tile_bytes=form.tile_bytes + grown * (2 if form.minimum else 1),
    )
    return new, torch.cat(parts, 2).flatten(1)
