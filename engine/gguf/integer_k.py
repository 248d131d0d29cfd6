"""Integers of the types with 256 elements, one fp16 scale and a small integer per 16 or 32.

Every function takes blocks, uint8 [n, block_bytes], to `Blocks`. Bit layouts are those of ggml.
"""

from __future__ import annotations

import torch

from engine.gguf.integer_blocks import (
    IQ4_VALUES,
    Blocks,
    Tensor,
    fields,
    half,
    looked_up,
    planes,
    signed,
)


def q2_k(blocks: Tensor) -> Blocks:
    """16 bytes of 4-bit multipliers (low: scale, high: minimum), 64 of codes, d, dmin."""
    multipliers = planes(blocks[:, :16], 4)
    return Blocks(
        signed(planes(blocks[:, 16:80].reshape(-1, 2, 32), 2).view(-1, 256)),
        half(blocks, 80),
        signed(multipliers[:, 0]),
        half(blocks, 82),
        signed(multipliers[:, 1]),
    )


def q3_k(blocks: Tensor) -> Blocks:
    """32 bytes of third bits (set: nothing is subtracted), 64 of low bits, 12 of 6-bit
    multipliers, d."""
    codes = planes(blocks[:, 32:96].reshape(-1, 2, 32), 2).view(-1, 256)
    codes |= planes(blocks[:, :32], 1).view(-1, 256).bitwise_left_shift_(2)
    # The multipliers: 16 low halves in 8 bytes, 16 pairs of high bits in 4.
    multiplier = planes(blocks[:, 96:104], 4).view(-1, 16)
    multiplier |= planes(blocks[:, 104:108], 2).view(-1, 16).bitwise_left_shift_(4)
    return Blocks(signed(codes, 4), half(blocks, 108), signed(multiplier, 32))


def q4_k(blocks: Tensor) -> Blocks:
    """d, dmin, 12 bytes of 6-bit multipliers, 128 of codes."""
    multiplier, minimum = _six_bits(blocks[:, 4:16])
    codes = planes(blocks[:, 16:].reshape(-1, 4, 32), 4).view(-1, 256)
    return Blocks(signed(codes), half(blocks, 0), multiplier, half(blocks, 2), minimum)


def q5_k(blocks: Tensor) -> Blocks:
    """d, dmin, 12 bytes of 6-bit multipliers, 32 of fifth bits, 128 of low bits."""
    multiplier, minimum = _six_bits(blocks[:, 4:16])
    codes = planes(blocks[:, 48:].reshape(-1, 4, 32), 4).view(-1, 256)
    codes |= planes(blocks[:, 16:48], 1).view(-1, 256).bitwise_left_shift_(4)
    return Blocks(signed(codes), half(blocks, 0), multiplier, half(blocks, 2), minimum)


def _six_bits(packed: Tensor) -> tuple[Tensor, Tensor]:
    """12 bytes -> 8 multipliers of scales and 8 of minima.

    Bytes 0..3 and 4..7 hold the first four of each in their low six bits; bytes 8..11 hold the
    low halves of the last four, whose two high bits are those of bytes 0..7.
    """
    first, last = packed[:, :8], packed[:, 8:]
    high = (first >> 6).bitwise_left_shift_(4)
    scales = torch.cat((first[:, :4] & 63, (last & 15) | high[:, :4]), 1)
    minima = torch.cat((first[:, 4:] & 63, (last >> 4) | high[:, 4:]), 1)
    return signed(scales), signed(minima)


def q6_k(blocks: Tensor) -> Blocks:
    """128 bytes of low halves, 64 of high pairs, 16 signed multipliers, d."""
    codes = planes(blocks[:, :128].reshape(-1, 2, 64), 4).view(-1, 256)
    codes |= planes(blocks[:, 128:192].reshape(-1, 2, 32), 2).view(-1, 256).bitwise_left_shift_(4)
    return Blocks(signed(codes, 32), half(blocks, 208), blocks[:, 192:208].view(torch.int8))


def iq4_xs(blocks: Tensor) -> Blocks:
    """d, 16 bits of high pairs, 4 bytes of low halves of the multipliers, 128 of codes."""
    # Both hold multipliers in element order.
    multiplier = fields(blocks[:, 4:8], 4).view(-1, 8)
    multiplier |= fields(blocks[:, 2:4], 2).view(-1, 8).bitwise_left_shift_(4)
    codes = looked_up(IQ4_VALUES, blocks[:, 8:].reshape(-1, 8, 16)).reshape(-1, 256)
    return Blocks(codes, half(blocks, 0), signed(multiplier, 32))
