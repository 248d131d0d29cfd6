"""How a matrix lies in device memory: what a kernel is compiled for.

A record is one matrix, tile after tile: 16 outputs and all their inputs. A tile of integers is a
run of quads (4 groups of 32 inputs); behind them, for types whose scales serve 8 groups, lie the
scales, segment by segment (4 quads). A quad is a few sections of words, and a section is one run
for a warp that reads it: thread 4 * n + q has inputs 4q to 4q + 3 and 16 + 4q to 16 + 4q + 3 of
every group, of outputs n and n + 8. So it holds what tensor cores want of it.

Sections of a quad, in order (axes from the slowest; `out`: outputs n and n + 8):

* codes, 2 bits: [thread, out, pair of groups]: in a byte, from the lowest bits, the first group's
  first and second half, then the other group's.
* codes, 4 bits and the upper four of more: [out, thread, group]: the low fields of the bytes are
  the first half of the group; with a table the low two bytes are.
* codes, 8 bits: [group, thread, half, out], so one load is an operand of tensor cores; 16 bits:
  first the upper ones of all, then the lower ones, likewise.
* the lowest bit of 5: [thread, out], in a byte as the 2-bit fields, for four groups.
* the lowest two bits of 6: [thread, out, pair of groups], as 2-bit codes.
* multipliers plus 128: [n, those of codes (one or two halves of a group), then of minima, out].
* scales, then those of minima: [n, which, out, scale], fp16 pairs or float32.

Scales for 8 groups: [segment, n, which, out, 2].
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from engine.gguf.types import QuantType, has_limbs

GROUP = 32
TILE = 16
# Groups of a quad, quads of a segment.
QUAD = 4
SEGMENT = 4
# Four outputs of 32 lanes give each thread of a warp four lanes, of weights and of activations.
FLOAT_TILE = 4


class Form(NamedTuple):
    """How integers of a type lie; the same for all its matrices.

    A field of `bits` bits becomes a byte that is 2**`shift` times the code, plus `bias`; it is
    unsigned where `unsigned` says so, and has the bits `odd` besides. With a `table` (16 signed
    bytes as four words) the field is an index of it instead. `multipliers` and
    `minimum_multipliers` of a group: 0 (all 1), 1, or 2 (one for 16 elements). A scale serves
    `span` groups (1, 2 or 8); it is `factor` times an fp16 number, or a float32 number if `wide`.
    16 bits are two signed limbs, see `engine/gguf/limbs.py`.
    `codes`, `low`, `numbers` and `scales`: words that a thread has of each section of a quad, and
    of a segment's scales, `tail`. `quad`: words of a whole quad.
    """

    bits: int
    shift: int
    unsigned: bool
    odd: int
    bias: int
    table: tuple[int, ...]
    multipliers: int
    minimum: bool
    minimum_multipliers: int
    span: int
    wide: bool
    factor: float
    codes: int
    low: int
    numbers: int
    scales: int
    quad: int
    tail: int

    def tile_words(self, quads: int) -> int:
        """Words of 16 outputs."""
        return quads * self.quad + -(-quads // SEGMENT) * 8 * self.tail


class FloatForm(NamedTuple):
    """A matrix of floats as stored, [tiles, groups, tile, 32], zeros behind the last column."""

    groups: int
    unrolled: int
    tile: int


class Codes(NamedTuple):
    """The field of a code and the factor of a scale. `factor` None: `wide`.

    A field is the code plus `bias`, its two's complement (`signed`), half of an `odd` code rounded
    down, also as two's complement, or the code's place in `table`. 8 bits: the code itself.
    """

    bits: int
    bias: int = 0
    signed: bool = False
    odd: bool = False
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
        "Q4_0": Codes(4, signed=True),
        "Q4_1": Codes(4),
        "Q5_0": Codes(5, signed=True),
        "Q5_1": Codes(5),
        "Q8_0": Codes(8, signed=True),
        "Q2_0": Codes(2, bias=1),
        "TQ1_0": Codes(2, bias=1),
        "TQ2_0": Codes(2, bias=1),
        "Q2_K": Codes(2),
        "Q3_K": Codes(4, signed=True),
        "Q4_K": Codes(4),
        "Q5_K": Codes(5),
        "Q6_K": Codes(6, signed=True),
        "IQ1_S": _IQ1,
        "IQ1_M": _IQ1,
        "IQ2_XXS": _IQ2,
        "IQ2_XS": _IQ2,
        "IQ2_S": _IQ2,
        "IQ3_XXS": Codes(4, table=_both(4, 12, 20, 28, 36, 44, 52, 62), factor=0.25),
        "IQ3_S": Codes(4, signed=True, odd=True),
        "IQ4_NL": Codes(4, table=_IQ4),
        "IQ4_XS": Codes(4, table=_IQ4),
        "MXFP4": Codes(4, table=_both(0, 1, 2, 3, 4, 6, 8, 12), factor=None),
    }
)
"""The field that holds a code of each integer type without loss."""


def are_integers(kind: QuantType, columns: int) -> bool:
    """True if matrices of this type are integers where activations are. Others have a float scale
    for 16 elements, or groups that are not whole."""
    return kind.name in CODES or has_limbs(kind, columns)


def words_of(table: tuple[int, ...]) -> tuple[int, ...]:
    """16 signed bytes as four int32, the first byte lowest."""
    words = (
        sum((table[4 * i + j] & 255) << 8 * j for j in range(4)) for i in range(len(table) // 4)
    )
    return tuple(w - (1 << 32) if w >> 31 else w for w in words)


def form_of(kind: QuantType, *, multipliers: int, minimum: bool, minimum_multipliers: int) -> Form:
    """The form of matrices of this type."""
    codes = CODES[kind.name]
    shift = 0 if codes.table else 8 - codes.bits - codes.odd
    form = Form(
        bits=codes.bits,
        shift=shift,
        unsigned=not codes.signed and not codes.table,
        odd=codes.odd << shift,
        bias=codes.bias << shift,
        table=words_of(codes.table),
        multipliers=multipliers,
        minimum=minimum,
        minimum_multipliers=minimum_multipliers,
        span=max(1, kind.block_elements // GROUP),
        wide=codes.factor is None,
        factor=1.0 if codes.factor is None else codes.factor,
        codes=0, low=0, numbers=0, scales=0, quad=0, tail=0,
    )  # fmt: skip
    return laid_out(form)


def laid_out(form: Form) -> Form:
    """The same with the counts of words that follow from the rest."""
    kinds = 2 if form.minimum else 1
    a_quad = QUAD // form.span
    scales = 2 * kinds * (a_quad if form.wide else a_quad // 2)
    a_segment = QUAD * SEGMENT // form.span
    tail = 0 if a_quad else 2 * kinds * (a_segment if form.wide else a_segment // 2)
    codes = {2: 4, 8: 16, 16: 32}.get(form.bits, 8)
    low = {5: 2, 6: 4}.get(form.bits, 0)
    numbers = 2 * (form.multipliers + form.minimum_multipliers)
    return form._replace(
        codes=codes, low=low, numbers=numbers, scales=scales,
        quad=32 * (codes + low) + 8 * (numbers + scales), tail=tail,
    )  # fmt: skip


LIMBS = laid_out(
    Form(
        bits=16, shift=0, unsigned=False, odd=0, bias=0, table=(), multipliers=0, minimum=False,
        minimum_multipliers=0, span=8, wide=True, factor=1.0, codes=0, low=0,
        numbers=0, scales=0, quad=0, tail=0,
    )
)  # fmt: skip
"""Matrices of floats, where activations are int8."""
