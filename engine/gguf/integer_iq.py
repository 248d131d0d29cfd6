"""Integers of the codebook types: 4 or 8 codes at a time come from a grid, signs apart.

Every function takes blocks of 256 elements, uint8 [n, block_bytes], to `Blocks`. Bit layouts are
those of ggml; the grids come from the `gguf` package. Multipliers are 2 * stored + 1, and what is
left of the stored scale's offset of one half are powers of two, folded into the scale.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from engine.gguf.integer_blocks import Blocks, Bytes, Float32, Int8, half

Words = np.ndarray[Any, np.dtype[np.integer[Any]]]


@cache
def _grid(name: str) -> Int8:
    """The grid of a type: int8 [entries, 4 or 8]."""
    from gguf import quants

    traits: Any = getattr(quants, name)
    traits.init_grid()
    grid: Int8 = traits.grid.reshape(traits.grid_shape).astype(np.int8)
    return grid


@cache
def _grid_with_delta() -> Int8:
    """The grid of IQ1_S and IQ1_M in eighths, plus 1 (entries 0..2047) or less 1 (from 2048)."""
    eighths = _grid("IQ1_S") * np.int8(8)
    return np.concatenate((eighths + np.int8(1), eighths - np.int8(1)))


@cache
def _signs() -> Int8:
    """Byte -> eight factors of 1 or -1, lowest bit first: int8 [256, 8]."""
    bit = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return np.int8(1) - np.int8(2) * bit.astype(np.int8)


@cache
def _signs_of_seven() -> Int8:
    """Seven bits -> eight factors; the eighth makes the number of minus signs even."""
    seven = np.arange(128, dtype=np.uint8)
    parity = np.unpackbits(seven[:, None], axis=1).sum(axis=1, dtype=np.uint8) & 1
    index: Bytes = seven | parity << np.uint8(7)
    return _signs()[index]


def _rows(table: Int8, index: Words) -> Int8:
    """Rows of `table` in the order of `index`: int8 [n, 256]. A row moves as one number."""
    word = np.dtype(f"u{table.shape[1]}")
    return table.view(word)[:, 0][index].view(np.int8).reshape(-1, 256)


def _odd(stored: Bytes) -> Int8:
    """Stored multipliers s of up to four bits -> 2s + 1."""
    return (stored.astype(np.int8) << np.int8(1)) + np.int8(1)


def _halves_in_order(packed: Bytes) -> Bytes:
    """[n, w] bytes -> [n, 2w]: low half, high half of each in turn."""
    return np.stack((packed & 15, packed >> 4), axis=-1).reshape(len(packed), -1)


def _numbers(packed: Bytes, dtype: str) -> Words:
    return np.ascontiguousarray(packed).view(dtype)


def _scale(blocks: Bytes, factor: float) -> Float32:
    return half(blocks, 0) * np.float32(factor)


def iq1_s(blocks: Bytes) -> Blocks:
    """d, 32 bytes of grid indices, 8 words: high bits of four indices, multiplier, sign of delta.

    The delta of 1/8 that every grid value gets goes into the code: 8 * grid + 1 or - 1.
    """
    words = _numbers(blocks[:, 34:50], "<u2")
    high = (words[..., None] >> np.array([0, 3, 6, 9], np.uint16)) & 7
    high |= (words >> 15 << 3)[..., None]
    index = high.reshape(-1, 32) << 8 | blocks[:, 2:34]
    multiplier = _odd((words >> 12 & 7).astype(np.uint8))
    return Blocks(_rows(_grid_with_delta(), index), _scale(blocks, 0.125), multiplier)


def iq1_m(blocks: Bytes) -> Blocks:
    """32 bytes of grid indices, 32 halves: high bits of an index and the sign of its delta, four
    words: four multipliers of three bits and a quarter of the fp16 scale each."""
    high = _halves_in_order(blocks[:, 32:48]).astype(np.uint16)
    index = high << 8 | blocks[:, :32]
    words = _numbers(blocks[:, 48:56], "<u2")
    stored = (words[..., None] >> np.array([0, 3, 6, 9], np.uint16)) & 7
    quarters = (words >> 12) << np.array([0, 4, 8, 12], np.uint16)
    d = np.bitwise_or.reduce(quarters, axis=1, keepdims=True).view(np.float16)
    return Blocks(
        _rows(_grid_with_delta(), index),
        d.astype(np.float32) * np.float32(0.125),
        _odd(stored.astype(np.uint8).reshape(-1, 16)),
    )


def _seven_bit_signs(words: Words) -> Int8:
    """[n, 8] words of four 7-bit sign indices -> [n, 256] factors."""
    index = (words[..., None] >> np.array([0, 7, 14, 21], np.uint32)) & 127
    return _rows(_signs_of_seven(), index.reshape(-1, 32))


def iq2_xxs(blocks: Bytes) -> Blocks:
    """d, 8 times: four grid indices, then a word of four 7-bit sign indices and a multiplier."""
    body = blocks[:, 2:].reshape(-1, 8, 8)
    words = _numbers(body[..., 4:], "<u4")[..., 0]
    codes = _rows(_grid("IQ2_XXS"), body[..., :4].reshape(-1, 32))
    codes *= _seven_bit_signs(words)
    return Blocks(codes, _scale(blocks, 0.125), _odd((words >> 28).astype(np.uint8)))


def iq2_xs(blocks: Bytes) -> Blocks:
    """d, 32 words of a 9-bit grid index and a 7-bit sign index, 16 multipliers of 4 bits."""
    words = _numbers(blocks[:, 2:66], "<u2")
    codes = _rows(_grid("IQ2_XS"), words & 511)
    codes *= _rows(_signs_of_seven(), words >> 9)
    return Blocks(codes, _scale(blocks, 0.125), _odd(_halves_in_order(blocks[:, 66:74])))


def iq2_s(blocks: Bytes) -> Blocks:
    """d, 32 low bytes of grid indices, 32 bytes of signs, 32 high pairs, 16 multipliers."""
    high = (blocks[:, 66:74, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
    index = high.reshape(-1, 32).astype(np.uint16) << 8 | blocks[:, 2:34]
    codes = _rows(_grid("IQ2_S"), index)
    codes *= _rows(_signs(), blocks[:, 34:66])
    return Blocks(codes, _scale(blocks, 0.125), _odd(_halves_in_order(blocks[:, 74:82])))


def iq3_xxs(blocks: Bytes) -> Blocks:
    """d, 64 grid indices, 8 words of four 7-bit sign indices and a multiplier."""
    words = _numbers(blocks[:, 66:98], "<u4")
    codes = _rows(_grid("IQ3_XXS"), blocks[:, 2:66])
    codes *= _seven_bit_signs(words)
    return Blocks(codes, _scale(blocks, 0.25), _odd((words >> 28).astype(np.uint8)))


def iq3_s(blocks: Bytes) -> Blocks:
    """d, 64 low bytes of grid indices, 64 ninth bits, 32 bytes of signs, 8 multipliers."""
    ninth = np.unpackbits(np.ascontiguousarray(blocks[:, 66:74]), axis=1, bitorder="little")
    index = ninth.astype(np.uint16) << 8 | blocks[:, 2:66]
    codes = _rows(_grid("IQ3_S"), index)
    codes *= _rows(_signs(), blocks[:, 74:106])
    return Blocks(codes, _scale(blocks, 1), _odd(_halves_in_order(blocks[:, 106:110])))
