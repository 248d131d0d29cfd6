"""Random bytes that are valid blocks of a tensor type, the same on every machine and device.

Byte i of a stream is byte i % 8 (lowest first) of SplitMix64's output i // 8, started at the
stream's key: each word is a function of its number, so any part can be made alone. Then the bytes
that hold a scale's exponent and sign are fixed: a scale lies between 2**e and 2**(e + 1).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from engine.gguf.types import QuantType

if TYPE_CHECKING:
    import torch

Bytes = npt.NDArray[np.uint8]

_STEP = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)
_MASK = (1 << 64) - 1
# Bytes made at a time: on a CPU they stay in a core's cache, on a GPU they bound its memory.
_CPU_CHUNK, _GPU_CHUNK = 1 << 18, 1 << 26


@dataclass(frozen=True, slots=True)
class _Form:
    """How random blocks of a type are made.

    halves: places of fp16 scales, each with the power of two that it has over the first (a minimum
    is so much larger that weights have a mean near 0), and True where it is negative. rms: of the
    weights whose first scale is 1, so that scales can be chosen. ternary: place of 2-bit codes that
    become sums of two bits, so that the codes' mean is 1, the code of 0.
    """

    rms: float
    halves: tuple[tuple[int, int, bool], ...] = ((0, 0, False),)
    ternary: int | None = None


_FORMS: Mapping[str, _Form] = MappingProxyType(
    {
        "Q4_0": _Form(4.63),
        "Q5_0": _Form(9.23),
        "Q8_0": _Form(73.7),
        "Q5_1": _Form(10.1, ((0, 0, False), (2, 4, True))),
        "Q2_0": _Form(0.706, ternary=2),
        "Q3_K": _Form(43.1, ((108, 0, False),)),
        "Q4_K": _Form(271.0, ((0, 0, False), (2, 3, False))),
        "Q5_K": _Form(547.0, ((0, 0, False), (2, 4, False))),
        "Q6_K": _Form(1361.0, ((208, 0, False),)),
        "IQ2_XXS": _Form(53.3),
        "IQ2_S": _Form(56.3),
        "IQ3_XXS": _Form(141.7),
        "IQ3_S": _Form(139.6),
        "IQ4_NL": _Form(67.3),
        "IQ4_XS": _Form(1244.0),
    }
)
RANDOM_TYPES = frozenset({*_FORMS, "F32", "F16", "BF16"})
"""Names of the types that can be made."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The bytes of one tensor: their stream, and what is fixed in every block.

    patches: (place in the block, bits kept, bits set). `ternary` as in `_Form`.
    """

    key: int
    block_bytes: int
    patches: tuple[tuple[int, int, int], ...]
    ternary: tuple[int, int] | None = None


def stream_key(seed: int, name: str) -> int:
    """A 64-bit start for the stream of tensor `name`."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def quantised_recipe(type: QuantType, key: int, rms: float) -> Recipe:
    """Blocks of a quantised type whose weights have about this root mean square."""
    form = _FORMS[type.name]
    patches: list[tuple[int, int, int]] = []
    for place, power, negative in form.halves:
        patches += _half(place, power + _exponent(rms / form.rms), 0x80 * negative)
    ternary = None if form.ternary is None else (form.ternary, type.block_bytes)
    return Recipe(key, type.block_bytes, tuple(patches), ternary)


def float_recipe(
    type: QuantType, key: int, rms: float, sign: Literal["both", "plus", "minus"] = "both"
) -> Recipe:
    """F32, F16 or BF16 numbers of about this root mean square, all within a factor of 2."""
    exponent, keep = _exponent(rms), 0x80 if sign == "both" else 0
    negative = 0x80 if sign == "minus" else 0
    if type.name == "F16":
        patches = _half(0, exponent, negative, keep)
    else:  # the upper half of F32 is laid out as BF16
        last = type.block_bytes - 1
        patches = (
            (last, keep, (127 + exponent) >> 1 | negative),
            (last - 1, 0x7F, (127 + exponent & 1) << 7),
        )
    return Recipe(key, type.block_bytes, patches)


def _half(place: int, exponent: int, sign: int, keep: int = 0) -> tuple[tuple[int, int, int], ...]:
    """Patches of an fp16 number between 2**exponent and twice that; from -15 down it is subnormal.

    Exponents are kept within -17..14.
    """
    exponent = min(14, max(-17, exponent))
    if exponent > -15:
        return ((place + 1, keep | 0x03, (15 + exponent) << 2 | sign),)
    top = 1 << exponent + 24  # the highest bit of the mantissa, others below it stay random
    high, low = divmod(top, 256)
    patches = [(place + 1, keep | max(high - 1, 0), high | sign)]
    return (*patches, (place, 0x7F, low)) if low else tuple(patches)


def _exponent(rms: float) -> int:
    """e for numbers of either exponent e, whose root mean square is 1.53 * 2**e."""
    return int(np.floor(np.log2(rms / 1.53) + 0.5))


def fill(recipe: Recipe, out: Bytes) -> None:
    """Writes the tensor's bytes into `out`, contiguous uint8 of whole blocks: 1.2 GB/s of one core;
    threads of one process are no faster."""
    flat = out.reshape(-1)
    size = _chunk(recipe, _CPU_CHUNK)
    for start in range(0, flat.size, size):
        _fill_chunk(recipe, start, flat[start : start + size])


def _chunk(recipe: Recipe, about: int) -> int:
    """Bytes of whole words and whole blocks."""
    both = lcm(8, recipe.block_bytes)
    return max(1, about // both) * both


def _fill_chunk(recipe: Recipe, start: int, out: Bytes) -> None:
    words = -(-out.size // 8)
    z = np.arange(words, dtype=np.uint64)
    z *= np.uint64(_STEP)
    z += np.uint64((recipe.key + (start // 8 + 1) * _STEP) & _MASK)
    t = np.empty_like(z)
    for shift, factor in zip(_SHIFTS, (*_FACTORS, None), strict=True):
        np.right_shift(z, np.uint64(shift), out=t)
        np.bitwise_xor(z, t, out=z)
        if factor is not None:
            z *= np.uint64(factor)
    out[:] = z.view(np.uint8)[: out.size]
    _fix(recipe, out.reshape(-1, recipe.block_bytes))


def _fix(recipe: Recipe, blocks: Any) -> None:
    """Fixes bytes of [blocks, block_bytes], a numpy array or a torch tensor of uint8."""
    if recipe.ternary is not None:
        codes = blocks[:, recipe.ternary[0] : recipe.ternary[1]]
        codes[:] = (codes & 0x55) + ((codes >> 1) & 0x55)
    for place, keep, bits in recipe.patches:
        blocks[:, place] = blocks[:, place] & keep | bits


def fill_on_device(recipe: Recipe, out: torch.Tensor, device: str | torch.device) -> None:
    """As `fill`, for a contiguous uint8 tensor anywhere: its bytes are made on `device`."""
    import torch

    flat = out.view(-1)
    size = _chunk(recipe, _GPU_CHUNK)
    for start in range(0, flat.numel(), size):
        part = flat[start : start + size]
        z = torch.arange(-(-part.numel() // 8), dtype=torch.int64, device=device)
        z.mul_(_signed(_STEP)).add_(_signed(recipe.key + (start // 8 + 1) * _STEP))
        for shift, factor in zip(_SHIFTS, (*_FACTORS, None), strict=True):
            z ^= (z >> shift) & ((1 << 64 - shift) - 1)  # >> of signed words repeats the sign
            if factor is not None:
                z.mul_(_signed(factor))
        made = z.view(torch.uint8)[: part.numel()]
        _fix(recipe, made.view(-1, recipe.block_bytes))
        part.copy_(made)


def _signed(word: int) -> int:
    """The signed number with the bits of a 64-bit word."""
    word &= _MASK
    return word - (1 << 64) if word >> 63 else word
