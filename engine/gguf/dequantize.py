"""Quantised rows to float32, bit for bit as the `gguf` package does it."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import UnsupportedModelError
from engine.gguf.types import QuantType


def dequantize(
    raw: np.ndarray[Any, np.dtype[np.uint8]], type: QuantType
) -> np.ndarray[Any, np.dtype[np.float32]]:
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
    if type.name == "Q2_0":
        return _q2_0(raw)
    if type.block_elements == 1:
        raise UnsupportedModelError(
            f"a tensor of type {type.name} cannot be used as weights",
            hint="Use a file whose weights are F32, F16, BF16 or quantised.",
        )
    # Imported late: opening a file and reading its metadata shall not load the package.
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize as package_dequantize

    return np.asarray(package_dequantize(raw, GGMLQuantizationType(type.id)), np.float32)


def _q2_0(
    raw: np.ndarray[Any, np.dtype[np.uint8]],
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Blocks of 64: fp16 d, then 16 bytes of four 2-bit codes, lowest bits first; (code-1)*d."""
    blocks = raw.reshape(-1, 18)
    d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    codes = blocks[:, 2:, None] >> np.array([0, 2, 4, 6], np.uint8) & np.uint8(3)
    values = d * (codes.reshape(-1, 64).astype(np.float32) - np.float32(1))
    return values.reshape(*raw.shape[:-1], raw.shape[-1] // 18 * 64)
