"""Rounding to the file's block formats: as a straight-through training step and as bytes.

`rounded(x, type)` is exactly what a reader of the bytes of `packed(x, type)` gets back.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = {"Q8_0": 32, "Q4_0": 32, "Q4_1": 32, "Q5_0": 32, "Q5_1": 32, "Q2_0": 64}
SCALE_CANDIDATES = torch.linspace(0.35, 1.05, 15)


def rounded(x: Tensor, type_name: str) -> Tensor:
    """x as the format holds it, float32; the last axis is cut into blocks."""
    if type_name == "F32":
        return x
    blocks = x.unflatten(-1, (-1, BLOCK[type_name]))
    codes, scale, minimum = _encode(blocks, type_name)
    return (codes * scale + minimum).flatten(-2)


def straight_through(x: Tensor, type_name: str) -> Tensor:
    """`rounded` forward, the identity backward."""
    return x + (rounded(x.detach(), type_name) - x.detach())


def packed(x: Tensor, type_name: str) -> NDArray[np.uint8]:
    """The bytes of x [..., K] as [..., row bytes]."""
    if type_name == "F32":
        return np.ascontiguousarray(x.numpy()).view(np.uint8)
    blocks = x.unflatten(-1, (-1, BLOCK[type_name]))
    codes, scale, minimum = (t.numpy() for t in _encode(blocks, type_name))
    head = scale.astype("<f2").view(np.uint8)
    if type_name in ("Q4_1", "Q5_1"):
        head = np.concatenate([head, minimum.astype("<f2").view(np.uint8)], axis=-1)
    body = np.concatenate([head, _bits(codes, type_name)], axis=-1)
    return body.reshape(*x.shape[:-1], -1)


def _half(x: Tensor) -> Tensor:
    return x.half().float()


def _encode(blocks: Tensor, type_name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Signed codes, scale and minimum such that value = code * scale + minimum, all float32."""
    if type_name == "Q2_0":
        return _encode_two_bits(blocks)
    zero = torch.zeros_like(blocks[..., :1])
    if type_name == "Q8_0":
        scale = _half(blocks.abs().amax(-1, keepdim=True) / 127)
        return _divide(blocks, scale).round().clamp(-127, 127), scale, zero
    top = 15 if type_name.startswith("Q4") else 31
    if type_name.endswith("_0"):
        extreme = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
        half = (top + 1) // 2
        scale = _half(extreme / -half)
        return _divide(blocks, scale).round().clamp(-half, half - 1), scale, zero
    low, high = blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True)
    scale, minimum = _half((high - low) / top), _half(low)
    return _divide(blocks - minimum, scale).round().clamp(0, top), scale, minimum


def _encode_two_bits(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes -1..2; the scale of either sign with the least squared error of 30 candidates."""
    peak = blocks.abs().amax(-1, keepdim=True)
    best_error = torch.full_like(peak, float("inf"))
    best = torch.zeros_like(peak)
    for factor in SCALE_CANDIDATES.tolist():
        for sign in (0.5, -0.5):
            scale = _half(peak * (factor * sign))
            codes = _divide(blocks, scale).round().clamp(-1, 2)
            error = (codes * scale - blocks).square().sum(-1, keepdim=True)
            better = error < best_error
            best_error = torch.where(better, error, best_error)
            best = torch.where(better, scale, best)
    return _divide(blocks, best).round().clamp(-1, 2), best, torch.zeros_like(best)


def _divide(x: Tensor, scale: Tensor) -> Tensor:
    return torch.where(scale == 0, torch.zeros_like(x), x / torch.where(scale == 0, 1.0, scale))


def _bits(codes: NDArray[np.float32], type_name: str) -> NDArray[np.uint8]:
    """The code bytes of each block in the format's order."""
    if type_name == "Q8_0":
        return codes.astype(np.int8).view(np.uint8)
    offset = {"Q2_0": 1, "Q4_0": 8, "Q5_0": 16}.get(type_name, 0)
    unsigned = (codes + offset).astype(np.uint8)
    if type_name == "Q2_0":
        quads = unsigned.reshape(*unsigned.shape[:-1], 16, 4)
        shifts = np.array([0, 2, 4, 6], dtype=np.uint8)
        packed_quads: NDArray[np.uint8] = np.bitwise_or.reduce(quads << shifts, axis=-1)
        return packed_quads
    nibbles = (unsigned[..., :16] & 15) | ((unsigned[..., 16:] & 15) << 4)
    if type_name.startswith("Q4"):
        return nibbles
    fifth = np.packbits(unsigned >> 4, axis=-1, bitorder="little")
    return np.concatenate([fifth, nibbles], axis=-1)
