"""How a matrix lies in device memory: what a kernel is compiled for.

A record is one matrix, tile after tile: `tile` outputs and all their inputs. A tile of integers is
one run of bytes: code planes, multipliers, scales, and the same for minima. Every section goes
group by group (32 inputs), so a program reads runs. In a byte of a plane the low field belongs to
element j of a group and the high one to element j + 16.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from engine.gguf.types import QuantType

GROUP = 32
TILE = 32
# Four outputs of 32 lanes give each thread of a warp four lanes, of weights and of activations.
FLOAT_TILE = 4
# Sections go in steps of 4 groups.
STEP = 4
FLOAT_TYPES = frozenset({"F32", "F16", "BF16", "NVFP4"})


class Form(NamedTuple):
    """A matrix of integers, K = 32 * `groups` inputs (`padded` groups, a multiple of 4, stored).
    `unrolled`: groups of the longest segment.

    A code is `step * field - offset`, its field has `bits` bits (8: the signed code itself). With a
    `table` (16 signed bytes as four words) the field is an index of it instead. `multipliers` and
    `minimum_multipliers` of a group: 0 (all 1), 1, or 2 (one for 16 elements). A scale serves
    `span` groups; it is `factor` times an fp16 number, or a float32 number if `wide`. The `at_`
    fields are byte offsets of sections in a tile of `tile_bytes`.
    """

    groups: int
    padded: int
    unrolled: int
    bits: int
    step: int
    offset: int
    table: tuple[int, ...]
    multipliers: int
    minimum: bool
    minimum_multipliers: int
    span: int
    wide: bool
    factor: float
    at_high: int
    at_multiplier: int
    at_scale: int
    at_minimum_multiplier: int
    at_minimum_scale: int
    tile_bytes: int


class FloatForm(NamedTuple):
    """A matrix of floats as stored, [tiles, groups, tile, 32], zeros behind the last column."""

    groups: int
    unrolled: int
    tile: int


class Codes(NamedTuple):
    """The field of a code and the factor of a scale, as `Form` says. `factor` None: `wide`."""

    bits: int
    step: int = 1
    offset: int = 0
    table: tuple[int, ...] = ()
    factor: float | None = 1.0


def _both(*magnitudes: int) -> tuple[int, ...]:
    values = (*magnitudes, *(-m for m in magnitudes))
    return values + (0,) * (16 - len(values))


_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_IQ1 = Codes(4, table=_both(1, 7, 9), factor=0.125)
_IQ2 = Codes(4, table=_both(8, 25, 43), factor=0.125)
CODES: MappingProxyType[str, Codes] = MappingProxyType(
    {
        "Q4_0": Codes(4, 1, 8),
        "Q4_1": Codes(4),
        "Q5_0": Codes(5, 1, 16),
        "Q5_1": Codes(5),
        "Q8_0": Codes(8),
        "Q2_0": Codes(2, 1, 1),
        "TQ1_0": Codes(2, 1, 1),
        "TQ2_0": Codes(2, 1, 1),
        "Q2_K": Codes(2),
        "Q3_K": Codes(4, 1, 4),
        "Q4_K": Codes(4),
        "Q5_K": Codes(5),
        "Q6_K": Codes(6, 1, 32),
        "IQ1_S": _IQ1,
        "IQ1_M": _IQ1,
        "IQ2_XXS": _IQ2,
        "IQ2_XS": _IQ2,
        "IQ2_S": _IQ2,
        "IQ3_XXS": Codes(4, table=_both(4, 12, 20, 28, 36, 44, 52, 62), factor=0.25),
        "IQ3_S": Codes(4, 2, 15),
        "IQ4_NL": Codes(4, table=_IQ4),
        "IQ4_XS": Codes(4, table=_IQ4),
        "MXFP4": Codes(4, table=_both(0, 1, 2, 3, 4, 6, 8, 12), factor=None),
    }
)
"""The field that holds a code of each integer type without loss."""


def words_of(table: tuple[int, ...]) -> tuple[int, ...]:
    """16 signed bytes as four int32, the first byte lowest."""
    words = (
        sum((table[4 * i + j] & 255) << 8 * j for j in range(4)) for i in range(len(table) // 4)
    )
    return tuple(w - (1 << 32) if w >> 31 else w for w in words)


def form_of(
    kind: QuantType,
    columns: int,
    *,
    multipliers: int,
    minimum: bool,
    minimum_multipliers: int,
) -> Form:
    """The form of a matrix of this type."""
    codes = CODES[kind.name]
    factor = codes.factor
    groups = columns // GROUP
    padded = -(-groups // STEP) * STEP
    span = max(1, kind.block_elements // GROUP)
    scales = -(-padded // span)
    scale_bytes = 4 * TILE * (scales if factor is None else -(-scales // 2))
    low = {2: padded * 8, 8: padded * 32}.get(codes.bits, padded * 16) * TILE
    high = {5: padded * 4, 6: padded * 8}.get(codes.bits, 0) * TILE
    sizes = [
        low,
        high,
        multipliers * padded * TILE,
        scale_bytes,
        minimum_multipliers * padded * TILE,
        scale_bytes if minimum else 0,
    ]
    at = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    return Form(
        groups=groups,
        padded=padded,
        unrolled=min(16, padded),
        bits=codes.bits,
        step=codes.step,
        offset=codes.offset,
        table=words_of(codes.table),
        multipliers=multipliers,
        minimum=minimum,
        minimum_multipliers=minimum_multipliers,
        span=span,
        wide=factor is None,
        factor=1.0 if factor is None else factor,
        at_high=at[1],
        at_multiplier=at[2],
        at_scale=at[3],
        at_minimum_multiplier=at[4],
        at_minimum_scale=at[5],
        tile_bytes=at[6],
    )
