"""Embedding tables: rows are read and dequantised on demand, on the device.

Floats lie as stored. Some types of short blocks lie as in the file, on the device or in host memory
that it can read. Any other type lies as int8 codes, with a float32 factor and, where it has one, a
float32 minimum for 16 or 32 of them. A weight is factor * code, then less the minimum: the bits of
`engine/gguf/dequantize.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from engine.gguf.integer_form import IntegerForm, integer_form
from engine.gguf.stored import tensor_of
from engine.gguf.types import QuantType

Array = npt.NDArray[Any]
# Bytes that are taken apart at a time: bounds what lies in memory beside the result.
CHUNK_BYTES = 1 << 24
# Values of a row that a program reads.
BLOCK = 512
_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.int16}
_AS_STORED = frozenset({"Q4_0", "IQ4_NL", "Q8_0", "Q2_0"})
# The 16 signed bytes of IQ4_NL, the lowest code in the lowest byte, as two words.
IQ4_LOW = tl.constexpr(-654466911485192063)
IQ4_HIGH = tl.constexpr(8167635493787864321)


@triton.jit
def floats_kernel(TABLE, INDICES, OUT, K: tl.constexpr, B: tl.constexpr):
    """Grid (K / B, rows to read)."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.load(INDICES + tl.program_id(1))
    x = tl.load(TABLE + row * K + at, mask=at < K, other=0)
    if TABLE.dtype.element_ty == tl.int16:  # the upper halves of float32 numbers
        x = (x.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    tl.store(OUT + tl.program_id(1).to(tl.int64) * K + at, x.to(tl.float32), mask=at < K)


@triton.jit
def blocks_kernel(
    TABLE, HALVES, INDICES, OUT, K: tl.constexpr, KIND: tl.constexpr, ELEMENTS: tl.constexpr,
    BYTES: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Blocks that begin with their fp16 scale. TABLE, HALVES: the same bytes as uint8 and fp16.
    Grid (K / B, rows to read)."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    live = at < K
    row = tl.load(INDICES + tl.program_id(1))
    block = row * (K // ELEMENTS) + at // ELEMENTS
    i = at % ELEMENTS
    scale = tl.load(HALVES + block * (BYTES // 2), mask=live, other=0.0).to(tl.float32)
    codes = TABLE + block * BYTES + 2
    if KIND == "Q8_0":
        code = tl.load(codes + i, mask=live, other=0).to(tl.int8, bitcast=True).to(tl.int32)
    elif KIND == "Q2_0":
        byte = tl.load(codes + i // 4, mask=live, other=0).to(tl.int32)
        code = ((byte >> (i % 4 * 2)) & 3) - 1
    else:
        byte = tl.load(codes + i % 16, mask=live, other=0).to(tl.int32)
        code = tl.where(i < 16, byte & 15, byte >> 4)
        if KIND == "Q4_0":
            code = code - 8
        else:
            word = tl.where(code < 8, tl.full([B], IQ4_LOW, tl.int64), IQ4_HIGH)
            code = (word >> (code % 8 * 8)).to(tl.int8).to(tl.int32)
    out = OUT + tl.program_id(1).to(tl.int64) * K + at
    tl.store(out, scale * code.to(tl.float32), mask=live)


@triton.jit
def codes_kernel(
    CODES, FACTOR, MINIMUM, INDICES, OUT, K: tl.constexpr, SPAN: tl.constexpr,
    MINIMUM_SPAN: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Codes with a factor for SPAN of them and a minimum for MINIMUM_SPAN (0: none). Grid (K / B,
    rows to read)."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    live = at < K
    row = tl.load(INDICES + tl.program_id(1))
    factor = tl.load(FACTOR + row * (K // SPAN) + at // SPAN, mask=live, other=0.0)
    x = factor * tl.load(CODES + row * K + at, mask=live, other=0).to(tl.float32)
    if MINIMUM_SPAN > 0:
        low = MINIMUM + row * (K // MINIMUM_SPAN) + at // MINIMUM_SPAN
        x = x - tl.load(low, mask=live, other=0.0)
    tl.store(OUT + tl.program_id(1).to(tl.int64) * K + at, x, mask=live)


class Table:
    """An embedding table of rows, uint8 [N, row_bytes] in the file."""

    def __init__(self, raw: Array, kind: QuantType, *, device: torch.device | str = "cuda") -> None:
        self._kind = kind
        self._width = raw.shape[1] // kind.block_bytes * kind.block_elements
        if kind.name in _FLOATS or kind.name in _AS_STORED:
            stored = torch.empty(raw.shape, dtype=torch.uint8, device=device)
            for rows in _chunks(raw):
                stored[rows] = torch.from_numpy(np.ascontiguousarray(raw[rows])).to(device)
            self._parts = [stored]
        else:
            self._parts = _taken_apart(raw, kind, self._width, device)

    def rows(self, indices: torch.Tensor) -> torch.Tensor:
        """float32 [*indices, width]. indices: int64."""
        indices = indices.contiguous()
        out = torch.empty(*indices.shape, self._width, device=indices.device)
        if not indices.numel():
            return out
        width = self._width
        block = min(BLOCK, triton.next_power_of_2(width))
        grid = triton.cdiv(width, block), indices.numel()
        launch = {"K": width, "B": block, "num_warps": 4, "enable_fp_fusion": False}
        if self._kind.name in _FLOATS:
            table = self._parts[0].view(_FLOATS[self._kind.name])
            floats_kernel[grid](table, indices, out, **launch)
        elif self._kind.name in _AS_STORED:
            raw = self._parts[0]
            blocks_kernel[grid](
                raw, raw.view(torch.float16), indices, out, KIND=self._kind.name,
                ELEMENTS=self._kind.block_elements, BYTES=self._kind.block_bytes, **launch,
            )  # fmt: skip
        else:
            codes, factor, minimum = self._parts
            codes_kernel[grid](
                codes, factor, minimum, indices, out, SPAN=width // factor.shape[1],
                MINIMUM_SPAN=width // minimum.shape[1] if minimum.numel() else 0, **launch,
            )  # fmt: skip
        return out


def _chunks(raw: Array) -> Iterator[slice]:
    step = max(1, CHUNK_BYTES // raw.shape[1])
    for start in range(0, len(raw), step):
        yield slice(start, start + step)


def _taken_apart(
    raw: Array, kind: QuantType, width: int, device: torch.device | str
) -> list[torch.Tensor]:
    """Codes, factors and minima of all rows."""
    parts: list[torch.Tensor] = []
    for rows in _chunks(raw):
        form = integer_form(tensor_of(np.ascontiguousarray(raw[rows])), kind)
        arrays = (form.codes, _factor(form), _minimum(form))
        if not parts:
            parts = [
                torch.empty(len(raw), a.shape[1], dtype=a.dtype, device=device) for a in arrays
            ]
        for part, array in zip(parts, arrays, strict=True):
            part[rows] = array.to(device)
    return parts


def _factor(form: IntegerForm) -> torch.Tensor:
    return _spread(form.scale, form.multiplier)


def _minimum(form: IntegerForm) -> torch.Tensor:
    if form.minimum_scale is None:
        return torch.empty(len(form.codes), 0)
    return _spread(form.minimum_scale, form.minimum_multiplier)


def _spread(scale: torch.Tensor, multiplier: torch.Tensor | None) -> torch.Tensor:
    """scale * multiplier, exact, in the multiplier's shape."""
    if multiplier is None:
        return scale
    return scale.repeat_interleave(multiplier.shape[-1] // scale.shape[-1], -1) * multiplier
