"""Embedding tables: rows are read and dequantised on demand, on the device.

A table lies as in the file, on the device or in host memory that it can read: kernels have its
address. Quantised types that `table_blocks.py` lacks lie as int8 codes, with a float32 factor and,
where they have one, a float32 minimum for 16 or 32 of them. A weight is factor * code, then less
the minimum: the bits of `engine/gguf/dequantize.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from engine.gguf.integer_form import IntegerForm, integer_form
from engine.gguf.integer_iq import grid_words
from engine.gguf.stored import tensor_of
from engine.gguf.types import QuantType
from engine.kernels.dependent import launch_options, wait
from engine.kernels.table_blocks import long_block, short_block

# Elements that are taken apart at a time: bounds what lies in memory beside the result.
CHUNK_ELEMENTS = 1 << 25
# Values of a row that a program reads.
BLOCK = 512
_FLOATS = frozenset({"F32", "F16", "BF16"})
_SHORT = frozenset({"Q4_0", "IQ4_NL", "Q8_0", "Q2_0", "Q5_1"})
_LONG = frozenset({"Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ3_S"})


@triton.jit(do_not_specialize=["address"], do_not_specialize_on_alignment=["INDICES", "OUT"])
def stored_kernel(
    address, INDICES, OUT, GRID, K: tl.constexpr, KIND: tl.constexpr, ELEMENTS: tl.constexpr,
    BYTES: tl.constexpr, B: tl.constexpr, COPIES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Rows of stored blocks, or of floats. Grid (rows to read, K / B)."""
    at = tl.program_id(1) * B + tl.arange(0, B)
    live = at < K
    read = tl.program_id(0).to(tl.int64)
    wait(PDL)
    row = tl.load(INDICES + read)
    if KIND == "F32":
        x = tl.load(address.to(tl.pointer_type(tl.float32)) + row * K + at, mask=live, other=0.0)
    elif KIND == "F16":
        x = tl.load(address.to(tl.pointer_type(tl.float16)) + row * K + at, mask=live, other=0.0)
    elif KIND == "BF16":  # the upper halves of float32 numbers
        bits = tl.load(address.to(tl.pointer_type(tl.int16)) + row * K + at, mask=live, other=0)
        x = (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        block = row * (K // ELEMENTS) + at // ELEMENTS
        p = address.to(tl.pointer_type(tl.uint8)) + block * BYTES
        if ELEMENTS == 256:
            scale, code, less = long_block(p, at % ELEMENTS, live, GRID, KIND)
        else:
            scale, code, less = short_block(p, at % ELEMENTS, live, KIND)
        x = scale * code.to(tl.float32)
        if KIND == "Q5_1" or KIND == "Q4_K" or KIND == "Q5_K":
            x = x - less
    for copy in tl.static_range(COPIES):
        tl.store(OUT + (read * COPIES + copy) * K + at, x.to(tl.float32), mask=live)


@triton.jit(do_not_specialize_on_alignment=["INDICES", "OUT"])
def codes_kernel(
    CODES, FACTOR, MINIMUM, INDICES, OUT, K: tl.constexpr, SPAN: tl.constexpr,
    MINIMUM_SPAN: tl.constexpr, B: tl.constexpr, COPIES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Codes with a factor for SPAN of them and a minimum for MINIMUM_SPAN (0: none). Grid
    (rows to read, K / B)."""
    at = tl.program_id(1) * B + tl.arange(0, B)
    live = at < K
    read = tl.program_id(0).to(tl.int64)
    wait(PDL)
    row = tl.load(INDICES + read)
    factor = tl.load(FACTOR + row * (K // SPAN) + at // SPAN, mask=live, other=0.0)
    x = factor * tl.load(CODES + row * K + at, mask=live, other=0).to(tl.float32)
    if MINIMUM_SPAN > 0:
        low = MINIMUM + row * (K // MINIMUM_SPAN) + at // MINIMUM_SPAN
        x = x - tl.load(low, mask=live, other=0.0)
    for copy in tl.static_range(COPIES):
        tl.store(OUT + (read * COPIES + copy) * K + at, x, mask=live)


class Table:
    """An embedding table of rows, uint8 [N, row_bytes] as in the file: a numpy array, which goes to
    the device, or a tensor, which stays where it lies, on the device or in host memory that the
    driver knows."""

    def __init__(
        self,
        raw: npt.NDArray[np.uint8] | torch.Tensor,
        kind: QuantType,
        *,
        device: torch.device | str = "cuda",
    ) -> None:
        self._kind = kind
        self._width = raw.shape[1] // kind.block_bytes * kind.block_elements
        stored = raw if isinstance(raw, torch.Tensor) else tensor_of(raw).to(device)
        if kind.name in _FLOATS | _SHORT | _LONG:
            self._parts = [stored]
        else:
            self._parts = _taken_apart(stored, kind, torch.device(device))

    def rows(self, indices: torch.Tensor, copies: int = 0) -> torch.Tensor:
        """float32 [*indices, width]; [*indices, copies, width] with copies. indices: int64."""
        indices = indices.contiguous()
        shape = (*indices.shape, *([copies] if copies else []), self._width)
        out = torch.empty(shape, device=indices.device)
        if not indices.numel():
            return out
        width, name = self._width, self._kind.name
        block = min(BLOCK, triton.next_power_of_2(width))
        # A prompt's n-grams are more rows than the second axis of a grid may have.
        grid = indices.numel(), triton.cdiv(width, block)
        launch: dict[str, Any] = {
            "K": width, "B": block, "COPIES": max(copies, 1), "num_warps": max(1, block // 128),
            **launch_options(indices),
        }  # fmt: skip
        if len(self._parts) == 1:
            entries = _entries(indices.device) if name == "IQ3_S" else indices
            stored_kernel[grid](
                self._parts[0].data_ptr(), indices, out, entries, KIND=name,
                ELEMENTS=self._kind.block_elements, BYTES=self._kind.block_bytes, **launch,
            )  # fmt: skip
        else:
            codes, factor, minimum = self._parts
            codes_kernel[grid](
                codes, factor, minimum, indices, out, SPAN=width // factor.shape[1],
                MINIMUM_SPAN=width // minimum.shape[1] if minimum.numel() else 0, **launch,
            )  # fmt: skip
        return out


@lru_cache(maxsize=8)
def _entries(device: torch.device) -> torch.Tensor:
    return grid_words("IQ3_S", device)


def _chunks(raw: torch.Tensor, width: int) -> Iterator[slice]:
    step = max(1, CHUNK_ELEMENTS // width)
    for start in range(0, len(raw), step):
        yield slice(start, start + step)


def _taken_apart(raw: torch.Tensor, kind: QuantType, device: torch.device) -> list[torch.Tensor]:
    """Codes, factors and minima of all rows, on the device."""
    parts: list[torch.Tensor] = []
    for rows in _chunks(raw, raw.shape[1] // kind.block_bytes * kind.block_elements):
        form = integer_form(raw[rows].to(device), kind)
        found = (form.codes, _spread(form.scale, form.multiplier), _minimum(form))
        parts = parts or [part.new_empty(len(raw), part.shape[1]) for part in found]
        for whole, part in zip(parts, found, strict=True):
            whole[rows] = part
    return parts


def _minimum(form: IntegerForm) -> torch.Tensor:
    if form.minimum_scale is None:
        return form.scale.new_empty(len(form.codes), 0)
    return _spread(form.minimum_scale, form.minimum_multiplier)


def _spread(scale: torch.Tensor, multiplier: torch.Tensor | None) -> torch.Tensor:
    """scale * multiplier, exact, in the multiplier's shape."""
    if multiplier is None:
        return scale
    return scale.repeat_interleave(multiplier.shape[-1] // scale.shape[-1], -1) * multiplier
