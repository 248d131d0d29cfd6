"""Integers of the types with 256 elements, one fp16 scale and a small integer per 16 or 32.

Every function takes blocks, uint8 [n, block_bytes], to `Blocks`. Bit layouts are those of ggml.
"""

from __future__ import annotations

import numpy as np

from engine.gguf.integer_blocks import (
    IQ4_VALUES,
    Blocks,
    Bytes,
    Int8,
    bits,
    half,
    looked_up,
    nibbles,
    pairs,
    signed,
)


def q2_k(blocks: Bytes) -> Blocks:
    """16 bytes of 4-bit multipliers (low: scale, high: minimum), 64 of codes, d, dmin."""
    multipliers = nibbles(blocks[:, :16])
    return Blocks(
        signed(pairs(blocks[:, 16:80].reshape(-1, 2, 32)).reshape(-1, 256)),
        half(blocks, 80),
        signed(multipliers[:, 0]),
        half(blocks, 82),
        signed(multipliers[:, 1]),
    )


def q3_k(blocks: Bytes) -> Blocks:
    """32 bytes of third bits (set: nothing is subtracted), 64 of low bits, 12 of 6-bit
    multipliers, d."""
    codes = pairs(blocks[:, 32:96].reshape(-1, 2, 32)).reshape(-1, 256)
    codes |= bits(blocks[:, :32]).reshape(-1, 256) << np.uint8(2)
    # The multipliers: 16 low halves in 8 bytes, 16 pairs of high bits in 4.
    multiplier = nibbles(blocks[:, 96:104]).reshape(-1, 16)
    multiplier |= pairs(blocks[:, 104:108]).reshape(-1, 16) << np.uint8(4)
    return Blocks(signed(codes, 4), half(blocks, 108), signed(multiplier, 32))


def q4_k(blocks: Bytes) -> Blocks:
    """d, dmin, 12 bytes of 6-bit multipliers, 128 of codes."""
    multiplier, minimum = _six_bits(blocks[:, 4:16])
    codes = nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 256)
    return Blocks(signed(codes), half(blocks, 0), multiplier, half(blocks, 2), minimum)


def q5_k(blocks: Bytes) -> Blocks:
    """d, dmin, 12 bytes of 6-bit multipliers, 32 of fifth bits, 128 of low bits."""
    multiplier, minimum = _six_bits(blocks[:, 4:16])
    codes = nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 256)
    codes |= bits(blocks[:, 16:48]).reshape(-1, 256) << np.uint8(4)
    return Blocks(signed(codes), half(blocks, 0), multiplier, half(blocks, 2), minimum)


def _six_bits(packed: Bytes) -> tuple[Int8, Int8]:
    """12 bytes -> 8 multipliers of scales and 8 of minima.

    Bytes 0..3 and 4..7 hold the first four of each in their low six bits; bytes 8..11 hold the
    low halves of the last four, whose two high bits are those of bytes 0..7.
    """
    first, last = packed[:, :8], packed[:, 8:]
    high = (first >> 6) << np.uint8(4)
    scales = np.concatenate((first[:, :4] & 63, (last & 15) | high[:, :4]), axis=1)
    minima = np.concatenate((first[:, 4:] & 63, (last >> 4) | high[:, 4:]), axis=1)
    return signed(scales), signed(minima)


def q6_k(blocks: Bytes) -> Blocks:
    """128 bytes of low halves, 64 of high pairs, 16 signed multipliers, d."""
    codes = nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 256)
    codes |= pairs(blocks[:, 128:192].reshape(-1, 2, 32)).reshape(-1, 256) << np.uint8(4)
    return Blocks(signed(codes, 32), half(blocks, 208), blocks[:, 192:208].view(np.int8))


def iq4_xs(blocks: Bytes) -> Blocks:
    """d, 16 bits of high pairs, 4 bytes of low halves of the multipliers, 128 of codes."""
    # Both hold multipliers in element order.
    high = (blocks[:, 2:4, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
    multiplier = np.stack((blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4), axis=-1).reshape(-1, 8)
    multiplier |= high.reshape(-1, 8) << np.uint8(4)
    codes = looked_up(IQ4_VALUES, blocks[:, 8:].reshape(-1, 8, 16)).reshape(-1, 256)
    return Blocks(codes, half(blocks, 0), signed(multiplier, 32))
