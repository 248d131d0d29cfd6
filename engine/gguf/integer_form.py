"""The exact integers inside a quantised matrix: what integer products work on.

Every quantised type stores small integers and a few scales. This module takes them apart without
loss, so that one arithmetic serves all types: a weight is `scale * (multiplier * code)`, less
`minimum_scale * minimum_multiplier` where the type has minima.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from engine.errors import UnsupportedModelError
from engine.gguf import integer_blocks, integer_iq, integer_k
from engine.gguf.integer_blocks import Blocks, Tensor
from engine.gguf.types import QuantType

__all__ = ["INTEGER_TYPES", "IntegerForm", "integer_form"]

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
# Elements taken apart at a time: on a CPU so few that torch calls no second thread (where another
# process has that core, waiting for it costs 10 times the work), on a GPU what bounds its memory.
_CPU_CHUNK, _GPU_CHUNK = 1 << 15, 1 << 25


@dataclass(frozen=True, slots=True)
class IntegerForm:
    """A quantised array of shape [*, K] as integers and scales.

    `codes` int8 [*, K]; `scale` float32 [*, K/scale_elements]; `multiplier` int8 [*, K/16] or
    [*, K/32] (None: 1 everywhere); `minimum_scale` float32 [*, K/32] (None: no minima);
    `minimum_multiplier` int8, shaped like `multiplier` (None: 1 everywhere). `scale_elements` is
    32, and 16 for NVFP4. Products of a scale, a multiplier and a code are exact in float32. For
    activations of -127..127 the sum of 32 products with multiplier * code is below 2**24.
    """

    codes: Tensor
    scale: Tensor
    multiplier: Tensor | None = None
    minimum_scale: Tensor | None = None
    minimum_multiplier: Tensor | None = None
    scale_elements: int = 32

    def float32(self) -> Tensor:
        """The weights, float32 [*, K]: the bits that ggml's dequantisation gives."""
        factor = _spread(self.scale, self.multiplier)
        weights = factor[..., None] * self.codes.view(*factor.shape, -1)
        if self.minimum_scale is not None:
            weights -= _spread(self.minimum_scale, self.minimum_multiplier)[..., None]
        return weights.view(self.codes.shape)


def integer_form(raw: Tensor, type: QuantType) -> IntegerForm:
    """Takes uint8 [*, row_bytes] of a quantised type apart, on the device where it lies.

    Raises UnsupportedModelError for types that are no integers times scales (F32, F16, BF16, ...).
    """
    if type.name not in INTEGER_TYPES:
        raise UnsupportedModelError(
            f"weights of type {type.name} have no integer form",
            hint="Multiply them as floats.",
        )
    blocks = raw.reshape(-1, type.block_bytes)
    step = (_GPU_CHUNK if raw.is_cuda else _CPU_CHUNK) // type.block_elements
    whole = _spread_scales(_UNPACK[type.name](blocks[:step]), type.block_elements)
    if len(blocks) > step:
        first, whole = whole, _empty_like(whole, len(blocks))
        _store(whole, first, 0)
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


def _reshaped(array: Tensor, row: tuple[int, ...]) -> Tensor:
    """[n, w] -> [*, blocks * w] where `row` is (*, blocks)."""
    return array.reshape(*row[:-1], row[-1] * array.shape[1])


def _spread_scales(parts: Blocks, elements: int) -> Blocks:
    """With a scale per 32 elements at least."""
    shape = len(parts.codes), max(elements // 32, parts.scale.shape[1])
    minimum = parts.minimum_scale
    return replace(
        parts,
        scale=parts.scale.expand(shape),
        minimum_scale=None if minimum is None else minimum.expand(shape),
    )


def _empty_like(parts: Blocks, count: int) -> Blocks:
    """Room for `count` blocks in the shapes of `parts`."""

    def room(part: Any) -> Any:
        return None if part is None else part.new_empty(count, part.shape[1])

    return Blocks(*(room(getattr(parts, field.name)) for field in fields(parts)))


def _store(whole: Blocks, parts: Blocks, start: int) -> None:
    """Copies `parts` to rows `start`.. of `whole`; one scale of a block spreads over its groups."""
    rows = slice(start, start + len(parts.codes))
    for field in fields(whole):
        target, source = getattr(whole, field.name), getattr(parts, field.name)
        if target is not None:
            target[rows] = source


def _spread(scale: Tensor, multiplier: Tensor | None) -> Tensor:
    """scale * multiplier, float32 of the multiplier's shape; just the scale where there is none."""
    if multiplier is None:
        return scale
    each = multiplier.shape[-1] // scale.shape[-1]
    grouped = multiplier.view(*scale.shape, each) * scale[..., None]
    return grouped.view(multiplier.shape)
