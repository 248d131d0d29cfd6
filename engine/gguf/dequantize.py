"""Rows of any weight type to float32, bit for bit as ggml and the `gguf` package do it."""

from __future__ import annotations

import numpy as np

from engine.errors import UnsupportedModelError
from engine.gguf.integer_blocks import Bytes, Float32
from engine.gguf.integer_form import INTEGER_TYPES, integer_form
from engine.gguf.types import QuantType

# Bytes turned into floats at a time: the integers in between stay in the cache.
_CHUNK_BYTES = 1 << 17


def dequantize(raw: Bytes, type: QuantType) -> Float32:
    """uint8 [..., row_bytes] -> a new float32 [..., K] of weights.

    F16, BF16 and F32 are widened. Raises UnsupportedModelError for integer tensors and F64.
    """
    raw = np.ascontiguousarray(raw)
    if type.name == "F32":
        return raw.view(np.float32).copy()
    if type.name == "F16":
        return raw.view(np.float16).astype(np.float32)
    if type.name == "BF16":
        return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if type.name in INTEGER_TYPES:
        return _from_integers(raw, type)
    raise UnsupportedModelError(
        f"a tensor of type {type.name} cannot be used as weights",
        hint="Use a file whose weights are F32, F16, BF16 or quantised.",
    )


def _from_integers(raw: Bytes, type: QuantType) -> Float32:
    blocks = raw.reshape(-1, type.block_bytes)
    weights = np.empty((len(blocks), type.block_elements), np.float32)
    step = _CHUNK_BYTES // type.block_bytes
    for start in range(0, len(blocks), step):
        rows = slice(start, start + step)
        with np.errstate(invalid="ignore"):
            weights[rows] = integer_form(blocks[rows], type).float32()
    return weights.reshape(*raw.shape[:-1], raw.shape[-1] // type.block_bytes * type.block_elements)
