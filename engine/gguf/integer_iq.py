"""Integers of the codebook types: 4 or 8 codes at a time come from a grid, signs apart.

Every function takes blocks of 256 elements, uint8 [n, block_bytes], to `Blocks`. Bit layouts are
those of ggml; the grids come from the `gguf` package. Multipliers are 2 * stored + 1, and what is
left of the stored scale's offset of one half are powers of two, folded into the scale.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from engine.gguf.integer_blocks import Blocks, Tensor, fields, half, numbers, shifts, taken


@lru_cache(maxsize=32)
def grid_words(name: str, device: torch.device) -> Tensor:
    """The grid of a type: an integer of 4 or 8 codes for each entry."""
    from gguf import quants

    traits: Any = getattr(quants, name)
    traits.init_grid()
    return _words(torch.from_numpy(traits.grid.reshape(traits.grid_shape).astype(np.int8)), device)


@lru_cache(maxsize=8)
def _grid_with_delta(device: torch.device) -> Tensor:
    """The grid of IQ1_S and IQ1_M in eighths, plus 1 (entries 0..2047) or less 1 (from 2048)."""
    eighths = grid_words("IQ1_S", torch.device("cpu")).view(torch.int8).view(-1, 8) * 8
    return _words(torch.cat((eighths + 1, eighths - 1)), device)


@lru_cache(maxsize=8)
def _signs(device: torch.device) -> Tensor:
    """Byte -> eight factors of 1 or -1, lowest bit first."""
    return _words(1 - 2 * (torch.arange(256)[:, None] >> torch.arange(8) & 1), device)


@lru_cache(maxsize=8)
def _signs_of_seven(device: torch.device) -> Tensor:
    """Seven bits -> eight factors; the eighth makes the number of minus signs even."""
    bit = torch.arange(128)[:, None] >> torch.arange(7) & 1
    return _words(1 - 2 * torch.cat((bit, bit.sum(1, keepdim=True) & 1), 1), device)


def _words(codes: Tensor, device: torch.device) -> Tensor:
    """[entries, 4 or 8] -> an integer of so many bytes for each entry: a row moves as one."""
    word = {4: torch.int32, 8: torch.int64}[codes.shape[1]]
    return codes.to(torch.int8).contiguous().view(word).view(-1).to(device)


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """Entries of `table` in the order of `index`: int8 [n, 256]."""
    return taken(table, index).view(torch.int8).view(-1, 256)


def _odd(stored: Tensor) -> Tensor:
    """Stored multipliers s of up to four bits -> 2s + 1."""
    return stored.to(torch.int8).mul_(2).add_(1)


def _halves_in_order(packed: Tensor) -> Tensor:
    """[n, w] bytes -> [n, 2w]: low half, high half of each in turn."""
    return fields(packed, 4).flatten(1)


def _short(packed: Tensor) -> Tensor:
    """Bytes of 16-bit words -> int32."""
    return numbers(packed, torch.int16).int() & 0xFFFF


def _scale(blocks: Tensor, factor: float) -> Tensor:
    return half(blocks, 0).mul_(factor)


def iq1_s(blocks: Tensor) -> Blocks:
    """d, 32 bytes of grid indices, 8 words: high bits of four indices, multiplier, sign of delta.

    The delta of 1/8 that every grid value gets goes into the code: 8 * grid + 1 or - 1.
    """
    words = _short(blocks[:, 34:50])
    high = (words[..., None] >> shifts(blocks.device, 0, 3, 6, 9)) & 7
    high |= (words >> 15 << 3)[..., None]
    index = high.view(-1, 32) << 8 | blocks[:, 2:34]
    codes = _rows(_grid_with_delta(blocks.device), index)
    return Blocks(codes, _scale(blocks, 0.125), _odd(words >> 12 & 7))


def iq1_m(blocks: Tensor) -> Blocks:
    """32 bytes of grid indices, 32 halves: high bits of an index and the sign of its delta, four
    words: four multipliers of three bits and a quarter of the fp16 scale each."""
    index = _halves_in_order(blocks[:, 32:48]).int() << 8 | blocks[:, :32]
    words = _short(blocks[:, 48:56])
    stored = (words[..., None] >> shifts(blocks.device, 0, 3, 6, 9)) & 7
    quarters = (words >> 12) << shifts(blocks.device, 0, 4, 8, 12)
    d = quarters.sum(1, keepdim=True).to(torch.int16).view(torch.float16)
    codes = _rows(_grid_with_delta(blocks.device), index)
    return Blocks(codes, d.float() * 0.125, _odd(stored.flatten(1)))


def _with_seven_bit_signs(codes: Tensor, words: Tensor) -> Tensor:
    """[n, 256] codes times the signs in [n, 8] words of four 7-bit indices; in place."""
    index = (words[..., None] >> shifts(words.device, 0, 7, 14, 21)) & 127
    return codes.mul_(_rows(_signs_of_seven(words.device), index))


def iq2_xxs(blocks: Tensor) -> Blocks:
    """d, 8 times: four grid indices, then a word of four 7-bit sign indices and a multiplier."""
    body = blocks[:, 2:].reshape(-1, 8, 8)
    words = numbers(body[..., 4:], torch.int32)[..., 0]
    codes = _rows(grid_words("IQ2_XXS", blocks.device), body[..., :4])
    codes = _with_seven_bit_signs(codes, words)
    return Blocks(codes, _scale(blocks, 0.125), _odd(words >> 28 & 15))


def iq2_xs(blocks: Tensor) -> Blocks:
    """d, 32 words of a 9-bit grid index and a 7-bit sign index, 16 multipliers of 4 bits."""
    words = _short(blocks[:, 2:66])
    codes = _rows(grid_words("IQ2_XS", blocks.device), words & 511)
    codes *= _rows(_signs_of_seven(blocks.device), words >> 9)
    return Blocks(codes, _scale(blocks, 0.125), _odd(_halves_in_order(blocks[:, 66:74])))


def iq2_s(blocks: Tensor) -> Blocks:
    """d, 32 low bytes of grid indices, 32 bytes of signs, 32 high pairs, 16 multipliers."""
    index = fields(blocks[:, 66:74], 2).view(-1, 32).int() << 8 | blocks[:, 2:34]
    codes = _rows(grid_words("IQ2_S", blocks.device), index)
    codes *= _rows(_signs(blocks.device), blocks[:, 34:66])
    return Blocks(codes, _scale(blocks, 0.125), _odd(_halves_in_order(blocks[:, 74:82])))


def iq3_xxs(blocks: Tensor) -> Blocks:
    """d, 64 grid indices, 8 words of four 7-bit sign indices and a multiplier."""
    words = numbers(blocks[:, 66:98], torch.int32)
    codes = _rows(grid_words("IQ3_XXS", blocks.device), blocks[:, 2:66])
    codes = _with_seven_bit_signs(codes, words)
    return Blocks(codes, _scale(blocks, 0.25), _odd(words >> 28 & 15))


def iq3_s(blocks: Tensor) -> Blocks:
    """d, 64 low bytes of grid indices, 64 ninth bits, 32 bytes of signs, 8 multipliers."""
    index = fields(blocks[:, 66:74], 1).view(-1, 64).int() << 8 | blocks[:, 2:66]
    codes = _rows(grid_words("IQ3_S", blocks.device), index)
    codes *= _rows(_signs(blocks.device), blocks[:, 74:106])
    return Blocks(codes, _scale(blocks, 1), _odd(_halves_in_order(blocks[:, 106:110])))
