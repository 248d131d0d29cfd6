"""Integers of the types with short blocks: one scale for 16, 32, 64 or 256 elements.

Every function takes blocks, uint8 [n, block_bytes] on any device, to `Blocks` there, and waits for
nothing. Bit layouts are those of ggml.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class Blocks:
    """Integers of n blocks of B elements: `codes` int8 [n, B], `scale` float32 [n, 1] or [n, B/32]
    (NVFP4: [n, B/16]), `multiplier` int8 [n, B/16] or [n, B/32], the same for minima."""

    codes: Tensor
    scale: Tensor
    multiplier: Tensor | None = None
    minimum_scale: Tensor | None = None
    minimum_multiplier: Tensor | None = None


# The non-linear 4-bit values of IQ4_NL and IQ4_XS.
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# Twice the values of a 4-bit float with 2 exponent bits and 1 mantissa bit.
_E2M1_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


@lru_cache(maxsize=64)
def shifts(device: torch.device, *by: int) -> Tensor:
    """uint8 [n], copied to a device once."""
    return torch.tensor(by, dtype=torch.uint8, device=device)


def fields(packed: Tensor, width: int) -> Tensor:
    """[..., w] bytes -> [..., w, n]: the fields of `width` bits of each, the lowest first."""
    by = shifts(packed.device, *range(0, 8, width))
    return (packed.unsqueeze(-1) >> by).bitwise_and_((1 << width) - 1)


def planes(packed: Tensor, width: int) -> Tensor:
    """[..., w] bytes -> [..., n, w]: the lowest `width` bits of all, then the next ones, ..."""
    by = shifts(packed.device, *range(0, 8, width)).unsqueeze(-1)
    return (packed.unsqueeze(-2) >> by).bitwise_and_((1 << width) - 1)


def half(blocks: Tensor, at: int) -> Tensor:
    """The fp16 at byte `at` of each block: float32 [n, 1]."""
    return numbers(blocks[:, at : at + 2], torch.float16).float()


def numbers(packed: Tensor, dtype: torch.dtype) -> Tensor:
    """[..., w] bytes anywhere -> [..., w / size] numbers."""
    return packed.clone(memory_format=torch.contiguous_format).view(dtype)


def signed(codes: Tensor, offset: int = 0) -> Tensor:
    """Unsigned codes below 128 as int8, less `offset`; in place."""
    result = codes.view(torch.int8)
    return result.sub_(offset) if offset else result


def taken(table: Tensor, index: Tensor) -> Tensor:
    """Entries of a table of one axis, in the shape of any integer index."""
    return table.index_select(0, index.reshape(-1).int()).view(index.shape)


@lru_cache(maxsize=8)
def _of_bytes(values: tuple[int, ...], device: torch.device) -> Tensor:
    """For each byte the entries of `values` at its low and its high half, as one int16."""
    both = torch.tensor([(values[i & 15], values[i >> 4]) for i in range(256)], dtype=torch.int8)
    return both.view(torch.int16).view(-1).to(device)


def looked_up(values: tuple[int, ...], packed: Tensor) -> Tensor:
    """[..., w] bytes of two 4-bit indices -> int8 [..., 2, w], entries of `values`."""
    both = taken(_of_bytes(values, packed.device), packed)
    return both.view(torch.int8).view(*packed.shape, 2).transpose(-1, -2)


def q4_0(blocks: Tensor) -> Blocks:
    return Blocks(signed(planes(blocks[:, 2:], 4).view(-1, 32), 8), half(blocks, 0))


def q4_1(blocks: Tensor) -> Blocks:
    codes = signed(planes(blocks[:, 4:], 4).view(-1, 32))
    return Blocks(codes, half(blocks, 0), minimum_scale=-half(blocks, 2))


def q5_0(blocks: Tensor) -> Blocks:
    return Blocks(signed(_five_bits(blocks[:, 2:6], blocks[:, 6:]), 16), half(blocks, 0))


def q5_1(blocks: Tensor) -> Blocks:
    codes = signed(_five_bits(blocks[:, 4:8], blocks[:, 8:]))
    return Blocks(codes, half(blocks, 0), minimum_scale=-half(blocks, 2))


def _five_bits(high: Tensor, low: Tensor) -> Tensor:
    """4 bytes of fifth bits in element order and 16 of nibbles -> [n, 32] codes of 0..31."""
    codes = planes(low, 4).view(-1, 32)
    return codes.bitwise_or_(fields(high, 1).view(-1, 32).bitwise_left_shift_(4))


def q8_0(blocks: Tensor) -> Blocks:
    return Blocks(blocks[:, 2:].view(torch.int8), half(blocks, 0))


def q2_0(blocks: Tensor) -> Blocks:
    """64 elements: fp16 d, 16 bytes of four 2-bit codes in element order, lowest bits first;
    a weight is d * (code - 1)."""
    return Blocks(signed(fields(blocks[:, 2:], 2).view(-1, 64), 1), half(blocks, 0))


def iq4_nl(blocks: Tensor) -> Blocks:
    return Blocks(looked_up(IQ4_VALUES, blocks[:, 2:]).reshape(-1, 32), half(blocks, 0))


def mxfp4(blocks: Tensor) -> Blocks:
    """The scale byte is an exponent; half of it undoes the doubled values."""
    exponent = blocks[:, :1].int()
    # Exponents 0 and 1 give subnormal floats: 2**-128 and 2**-127.
    pattern = torch.where(exponent < 2, (exponent + 1) << 21, (exponent - 1) << 23)
    codes = looked_up(_E2M1_VALUES, blocks[:, 1:]).reshape(-1, 32)
    return Blocks(codes, pattern.view(torch.float32))


@lru_cache(maxsize=8)
def _nvfp4_scales(device: torch.device) -> Tensor:
    byte = torch.arange(256)
    exponent, mantissa = (byte >> 3 & 15).double(), (byte & 7).double()
    values = torch.where(
        exponent == 0, mantissa * 2.0**-10, (8 + mantissa) * torch.exp2(exponent - 11)
    )
    # Not a number, which ggml reads as 0. The top bit is no part of the value, but 0xff is not
    # treated as 0x7f is.
    values[0x7F] = 0
    return values.float().to(device)


def nvfp4(blocks: Tensor) -> Blocks:
    """64 elements: four unsigned 8-bit float scales (4 exponent bits, 3 mantissa bits), each for
    16 elements of 8 bytes; half of a scale undoes the doubled values."""
    scale = taken(_nvfp4_scales(blocks.device), blocks[:, :4])
    codes = looked_up(_E2M1_VALUES, blocks[:, 4:].reshape(-1, 4, 8)).reshape(-1, 64)
    return Blocks(codes, scale)


@lru_cache(maxsize=8)
def _ternary(device: torch.device) -> Tensor:
    """For each byte its five base-3 digits less 1, highest first: int8 [256, 5]."""
    powers = torch.tensor([1, 3, 9, 27, 81])
    return ((torch.arange(256)[:, None] * powers % 256 * 3 >> 8) - 1).to(torch.int8).to(device)


def tq1_0(blocks: Tensor) -> Blocks:
    """256 elements: bytes of five base-3 digits, highest first, as fractions of 256."""
    digits = _ternary(blocks.device).index_select(0, blocks[:, :52].reshape(-1).int())
    digits = digits.view(-1, 52, 5).transpose(1, 2)
    parts = (digits[:, :, :32], digits[:, :, 32:48], digits[:, :4, 48:])
    return Blocks(torch.cat([p.flatten(1) for p in parts], 1), half(blocks, 52))


def tq2_0(blocks: Tensor) -> Blocks:
    codes = planes(blocks[:, :64].reshape(-1, 2, 32), 2).view(-1, 256)
    return Blocks(signed(codes, 1), half(blocks, 64))
