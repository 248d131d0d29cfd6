"""Quantisers: float32 rows to blocks, for small models that we make ourselves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.errors import UnsupportedModelError
from engine.gguf.types import QuantType

Bytes = npt.NDArray[np.uint8]
Int8 = npt.NDArray[np.int8]
Float32 = npt.NDArray[np.float32]

# Types that the `gguf` package quantises, with ggml's bits.
_PACKAGE = frozenset(("BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"))
QUANTIZABLE = _PACKAGE | {"F32", "F16", "Q2_0"}

_BLOCK = 64
_FP16_MAX = 65504.0
# First guesses of the scale, as parts of the largest magnitude of a block.
_GUESSES = tuple(float(part) for part in np.linspace(0.2, 1.0, 9))
# Blocks worked on at a time: temporaries stay in the cache.
_CHUNK_BLOCKS = 1 << 11


def quantize(weights: Float32, type: QuantType) -> Bytes:
    """float32 [..., K] -> uint8 [..., row_bytes]. All values must be finite.

    Raises UnsupportedModelError for a type without a quantiser and ValueError where K is not a
    multiple of the type's block.
    """
    weights = np.ascontiguousarray(weights, np.float32)
    if type.name not in QUANTIZABLE:
        raise UnsupportedModelError(
            f"there is no quantiser for {type.name}",
            hint="Choose one of " + ", ".join(sorted(QUANTIZABLE)) + ".",
        )
    if weights.shape[-1] % type.block_elements:
        raise ValueError(
            f"rows of {weights.shape[-1]} are not whole blocks of {type.block_elements}"
        )
    if type.name == "F32":
        return weights.view(np.uint8)
    if type.name == "F16":
        return weights.astype(np.float16).view(np.uint8)
    if type.name == "Q2_0":
        return _q2_0(weights)
    # Imported late: few commands quantise.
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize as package_quantize

    return np.asarray(package_quantize(weights, GGMLQuantizationType(type.id)), np.uint8)


def _q2_0(weights: Float32) -> Bytes:
    """Blocks of 64 weights: fp16 d and codes 0..3 of (code - 1) * d, d chosen for the smallest
    squared error."""
    blocks = weights.reshape(-1, _BLOCK)
    raw = np.empty((len(blocks), 18), np.uint8)
    for start in range(0, len(blocks), _CHUNK_BLOCKS):
        part = blocks[start : start + _CHUNK_BLOCKS]
        d, codes = _best_scale(part)
        stored = (codes + np.int8(1)).view(np.uint8).reshape(-1, 16, 4)
        target = raw[start : start + len(part)]
        target[:, :2] = d.astype("<f2").view(np.uint8)
        target[:, 2:] = np.bitwise_or.reduce(stored << np.array([0, 2, 4, 6], np.uint8), axis=-1)
    return raw.reshape(*weights.shape[:-1], weights.shape[-1] // _BLOCK * 18)


def _best_scale(blocks: Float32) -> tuple[Float32, Int8]:
    """The scale [n, 1], exact in fp16, and codes int8 [n, 64] of -1..2 with the smallest squared
    error among all first guesses of both signs, each improved twice by least squares.

    The levels -1, 0, 1, 2 lean to one side, so the sign of the scale matters.
    """
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    best_d, best_codes = np.zeros_like(largest), np.zeros(blocks.shape, np.int8)
    best_error = np.square(blocks).sum(axis=1, keepdims=True)
    for guess in (*_GUESSES, *(-part for part in _GUESSES)):
        d = _as_fp16(largest * np.float32(guess))
        for _ in range(2):
            codes = _codes(blocks, d)
            norm = np.square(codes).sum(axis=1, keepdims=True)
            fit = (blocks * codes).sum(axis=1, keepdims=True) / np.maximum(norm, np.float32(1))
            d = np.where(norm > 0, _as_fp16(fit), d)
        codes = _codes(blocks, d)
        error = np.square(blocks - d * codes).sum(axis=1, keepdims=True)
        better = error < best_error
        best_error = np.where(better, error, best_error)
        best_d = np.where(better, d, best_d)
        best_codes = np.where(better, codes.astype(np.int8), best_codes)
    return best_d, best_codes


def _as_fp16(d: Float32) -> Float32:
    return np.clip(d, -_FP16_MAX, _FP16_MAX).astype(np.float16).astype(np.float32)


def _codes(blocks: Float32, d: Float32) -> Float32:
    """The nearest of -1, 0, 1, 2 to blocks / d; 0 where d is 0."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(d == 0, np.float32(0), np.float32(1) / d)
        return np.clip(np.rint(blocks * inverse), -1, 2)
