"""The exact integers inside a quantised matrix: what integer products work on.

Every quantised type stores small integers and a few scales. This module takes them apart without
loss, so that one arithmetic serves all types: a weight is `scale * (multiplier * code)`, less
`minimum_scale * minimum_multiplier` where the type has minima.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from engine.errors import UnsupportedModelError
from engine.gguf import integer_blocks, integer_iq, integer_k
from engine.gguf.integer_blocks import Blocks, Bytes, Float32, Int8
from engine.gguf.types import QuantType

__all__ = ["INTEGER_TYPES", "IntegerForm", "integer_form"]

Array = np.ndarray[Any, Any]

_UNPACK = MappingProxyType(
    {
        "Q4_0": integer_blocks.q4_0,
        "Q4_1": integer_blocks.q4_1,
        "Q5_0": integer_blocks.q5_0,
        "Q5_1": integer_blocks.q5_1,
        "Q8_0": integer_blocks.q8_0,
        "Q2_0": integer_blocks.q2_0,
        "IQ4_NL": integer_blocks.iq4_nl,
        "MXFP4": integer_blocks.mxfp4,
        "NVFP4": integer_blocks.nvfp4,
        "TQ1_0": integer_blocks.tq1_0,
        "TQ2_0": integer_blocks.tq2_0,
        "Q2_K": integer_k.q2_k,
        "Q3_K": integer_k.q3_k,
        "Q4_K": integer_k.q4_k,
        "Q5_K": integer_k.q5_k,
        "Q6_K": integer_k.q6_k,
        "IQ4_XS": integer_k.iq4_xs,
        "IQ1_S": integer_iq.iq1_s,
        "IQ1_M": integer_iq.iq1_m,
        "IQ2_XXS": integer_iq.iq2_xxs,
        "IQ2_XS": integer_iq.iq2_xs,
        "IQ2_S": integer_iq.iq2_s,
        "IQ3_XXS": integer_iq.iq3_xxs,
        "IQ3_S": integer_iq.iq3_s,
    }
)
INTEGER_TYPES = frozenset(_UNPACK)
# Elements taken apart at a time: temporaries stay in the cache.
_CHUNK_ELEMENTS = 1 << 17


@dataclass(frozen=True, slots=True)
class IntegerForm:
    """A quantised array of shape [*, K] as integers and scales.

    `codes` int8 [*, K]; `scale` float32 [*, K/scale_elements]; `multiplier` int8 [*, K/16] or
    [*, K/32] (None: 1 everywhere); `minimum_scale` float32 [*, K/32] (None: no minima);
    `minimum_multiplier` int8, shaped like `multiplier` (None: 1 everywhere). `scale_elements` is
    32, and 16 for NVFP4. Products of a scale, a multiplier and a code are exact in float32. For
    activations of -127..127 the sum of 32 products with multiplier * code is below 2**24.
    """

    codes: Int8
    scale: Float32
    multiplier: Int8 | None = None
    minimum_scale: Float32 | None = None
    minimum_multiplier: Int8 | None = None
    scale_elements: int = 32

    def float32(self) -> Float32:
        """The weights, float32 [*, K]: the bits that ggml's dequantisation gives."""
        factor = _spread(self.scale, self.multiplier)
        grouped = self.codes.reshape(*factor.shape, -1)
        weights = factor[..., None] * grouped.astype(np.float32)
        if self.minimum_scale is not None:
            weights -= _spread(self.minimum_scale, self.minimum_multiplier)[..., None]
        return weights.reshape(self.codes.shape)


def integer_form(raw: Bytes, type: QuantType) -> IntegerForm:
    """Takes uint8 [*, row_bytes] of a quantised type apart.

    Raises UnsupportedModelError for types that are no integers times scales (F32, F16, BF16, ...).
    """
    if type.name not in INTEGER_TYPES:
        raise UnsupportedModelError(
            f"weights of type {type.name} have no integer form",
            hint="Multiply them as floats.",
        )
    blocks = np.ascontiguousarray(raw).reshape(-1, type.block_bytes)
    step = _CHUNK_ELEMENTS // type.block_elements
    # A damaged scale may be infinite or no number; it stays what it is.
    with np.errstate(invalid="ignore"):
        parts = _UNPACK[type.name](blocks[:step])
        whole = _empty_like(parts, len(blocks), type.block_elements)
        _store(whole, parts, 0)
        for start in range(step, len(blocks), step):
            _store(whole, _UNPACK[type.name](blocks[start : start + step]), start)
    row = (*raw.shape[:-1], raw.shape[-1] // type.block_bytes)
    return IntegerForm(
        _reshaped(whole.codes, row),
        _reshaped(whole.scale, row),
        None if whole.multiplier is None else _reshaped(whole.multiplier, row),
        None if whole.minimum_scale is None else _reshaped(whole.minimum_scale, row),
        None if whole.minimum_multiplier is None else _reshaped(whole.minimum_multiplier, row),
        type.block_elements // whole.scale.shape[1],
    )


def _reshaped(array: Array, row: tuple[int, ...]) -> Array:
    """[n, w] -> [*, blocks * w] where `row` is (*, blocks)."""
    return array.reshape(*row[:-1], row[-1] * array.shape[1])


def _empty_like(parts: Blocks, count: int, elements: int) -> Blocks:
    """Room for `count` blocks in the shapes of `parts`; a scale per 32 elements at least."""
    groups = max(elements // 32, parts.scale.shape[1])

    def room(array: Array | None, width: int) -> Any:
        return None if array is None else np.empty((count, width), array.dtype)

    m, mm = parts.multiplier, parts.minimum_multiplier
    return Blocks(
        room(parts.codes, elements),
        room(parts.scale, groups),
        room(m, 0 if m is None else m.shape[1]),
        room(parts.minimum_scale, groups),
        room(mm, 0 if mm is None else mm.shape[1]),
    )


def _store(whole: Blocks, parts: Blocks, start: int) -> None:
    """Copies `parts` to rows `start`.. of `whole`; one scale of a block spreads over its groups."""
    rows = slice(start, start + len(parts.codes))
    whole.codes[rows] = parts.codes
    whole.scale[rows] = parts.scale
    for target, source in (
        (whole.multiplier, parts.multiplier),
        (whole.minimum_scale, parts.minimum_scale),
        (whole.minimum_multiplier, parts.minimum_multiplier),
    ):
        if target is not None and source is not None:
            target[rows] = source


def _spread(scale: Float32, multiplier: Int8 | None) -> Float32:
    """scale * multiplier, float32 of the multiplier's shape; just the scale where there is none."""
    if multiplier is None:
        return scale
    repeated = np.repeat(scale, multiplier.shape[-1] // scale.shape[-1], axis=-1)
    return repeated * multiplier.astype(np.float32)
