"""Integers of the types with short blocks: one scale for 16, 32, 64 or 256 elements.

Every function takes blocks, uint8 [n, block_bytes], to `Blocks`. Bit layouts are those of ggml.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Int8 = np.ndarray[Any, np.dtype[np.int8]]
Float32 = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Integers of n blocks of B elements: `codes` int8 [n, B], `scale` float32 [n, 1] or [n, B/32]
    (NVFP4: [n, B/16]), `multiplier` int8 [n, B/16] or [n, B/32], the same for minima."""

    codes: Int8
    scale: Float32
    multiplier: Int8 | None = None
    minimum_scale: Float32 | None = None
    minimum_multiplier: Int8 | None = None


# The non-linear 4-bit values of IQ4_NL and IQ4_XS.
IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)
# Twice the values of a 4-bit float with 2 exponent bits and 1 mantissa bit.
_E2M1_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
_BITS = np.arange(8, dtype=np.uint8)
_PAIRS = np.array([0, 2, 4, 6], np.uint8)


def half(blocks: Bytes, at: int) -> Float32:
    """The fp16 at byte `at` of each block: float32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def nibbles(packed: Bytes) -> Bytes:
    """[..., w] bytes -> [..., 2, w]: all low halves, then all high halves."""
    return np.stack((packed & np.uint8(15), packed >> np.uint8(4)), axis=-2)


def pairs(packed: Bytes) -> Bytes:
    """[..., w] bytes -> [..., 4, w]: the lowest two bits of all, then the next two, ..."""
    return (packed[..., None, :] >> _PAIRS[:, None]) & np.uint8(3)


def bits(packed: Bytes) -> Bytes:
    """[..., w] bytes -> [..., 8, w]: the lowest bit of all bytes, then the next, ..."""
    return (packed[..., None, :] >> _BITS[:, None]) & np.uint8(1)


def signed(codes: Bytes, offset: int = 0) -> Int8:
    """Unsigned codes below 128 as int8, less `offset`; in place."""
    result = codes.view(np.int8)
    if offset:
        result -= np.int8(offset)
    return result


def looked_up(values: Int8, packed: Bytes) -> Int8:
    """[..., w] bytes of two 4-bit indices -> [..., 2, w] entries of `values`."""
    low, high = np.tile(values, 16), np.repeat(values, 16)
    return np.stack((low[packed], high[packed]), axis=-2)


def q4_0(blocks: Bytes) -> Blocks:
    return Blocks(signed(nibbles(blocks[:, 2:]).reshape(-1, 32), 8), half(blocks, 0))


def q4_1(blocks: Bytes) -> Blocks:
    codes = signed(nibbles(blocks[:, 4:]).reshape(-1, 32))
    return Blocks(codes, half(blocks, 0), minimum_scale=-half(blocks, 2))


def q5_0(blocks: Bytes) -> Blocks:
    return Blocks(signed(_five_bits(blocks[:, 2:6], blocks[:, 6:]), 16), half(blocks, 0))


def q5_1(blocks: Bytes) -> Blocks:
    codes = signed(_five_bits(blocks[:, 4:8], blocks[:, 8:]))
    return Blocks(codes, half(blocks, 0), minimum_scale=-half(blocks, 2))


def _five_bits(high: Bytes, low: Bytes) -> Bytes:
    """4 bytes of fifth bits in element order and 16 of nibbles -> [n, 32] codes of 0..31."""
    codes = nibbles(low).reshape(-1, 32)
    codes |= np.unpackbits(np.ascontiguousarray(high), axis=1, bitorder="little") << np.uint8(4)
    return codes


def q8_0(blocks: Bytes) -> Blocks:
    return Blocks(blocks[:, 2:].view(np.int8), half(blocks, 0))


def q2_0(blocks: Bytes) -> Blocks:
    """64 elements: fp16 d, 16 bytes of four 2-bit codes in element order, lowest bits first;
    a weight is d * (code - 1)."""
    codes = ((blocks[:, 2:, None] >> _PAIRS) & np.uint8(3)).reshape(-1, 64)
    return Blocks(signed(codes, 1), half(blocks, 0))


def iq4_nl(blocks: Bytes) -> Blocks:
    return Blocks(looked_up(IQ4_VALUES, blocks[:, 2:]).reshape(-1, 32), half(blocks, 0))


def mxfp4(blocks: Bytes) -> Blocks:
    """The scale byte is an exponent; half of it undoes the doubled values."""
    exponent = blocks[:, :1].astype(np.uint32)
    # Exponents 0 and 1 give subnormal floats: 2**-128 and 2**-127.
    pattern = np.where(
        exponent < 2, np.uint32(1 << 21) << exponent, (exponent - np.uint32(1)) << np.uint32(23)
    )
    codes = looked_up(_E2M1_VALUES, blocks[:, 1:]).reshape(-1, 32)
    return Blocks(codes, pattern.astype(np.uint32).view(np.float32))


def nvfp4(blocks: Bytes) -> Blocks:
    """64 elements: four unsigned 8-bit float scales (4 exponent bits, 3 mantissa bits), each for
    16 elements of 8 bytes; half of a scale undoes the doubled values."""
    byte = np.arange(256)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    values = np.where(exponent == 0, mantissa * 2.0**-10, (8 + mantissa) * 2.0 ** (exponent - 11))
    # Not a number, which ggml reads as 0. The top bit is no part of the value, but 0xff is not
    # treated as 0x7f is.
    values[0x7F] = 0
    scale = values.astype(np.float32)[blocks[:, :4]]
    codes = looked_up(_E2M1_VALUES, blocks[:, 4:].reshape(-1, 4, 8)).reshape(-1, 64)
    return Blocks(codes, scale)


def tq1_0(blocks: Bytes) -> Blocks:
    """256 elements: bytes of five base-3 digits, highest first, as fractions of 256."""
    powers = np.array([1, 3, 9, 27, 81], np.int64)[:, None]
    digits = ((powers * np.arange(256) % 256 * 3 >> 8) - 1).astype(np.int8)

    def unpacked(packed: Bytes, count: int) -> Int8:
        return np.stack([digits[k][packed] for k in range(count)], axis=1).reshape(len(packed), -1)

    first, second = unpacked(blocks[:, :32], 5), unpacked(blocks[:, 32:48], 5)
    parts = (first, second, unpacked(blocks[:, 48:52], 4))
    return Blocks(np.concatenate(parts, axis=1), half(blocks, 52))


def tq2_0(blocks: Bytes) -> Blocks:
    codes = pairs(blocks[:, :64].reshape(-1, 2, 32)).reshape(-1, 256)
    return Blocks(signed(codes, 1), half(blocks, 64))
