"""Rows of any weight type to float32, bit for bit as ggml and the `gguf` package do it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.errors import UnsupportedModelError
from engine.gguf.integer_form import INTEGER_TYPES, integer_form
from engine.gguf.stored import tensor_of
from engine.gguf.types import QuantType

# Elements turned into floats at a time, as in `integer_form`.
_CPU_CHUNK, _GPU_CHUNK = 1 << 15, 1 << 25


def dequantize(raw: npt.NDArray[np.uint8], type: QuantType) -> npt.NDArray[np.float32]:
    """uint8 [..., row_bytes] -> a new float32 [..., K] of weights.

    F16, BF16 and F32 are widened. Raises UnsupportedModelError for integer tensors and F64.
    """
    weights: npt.NDArray[Any] = dequantized(tensor_of(np.ascontiguousarray(raw)), type).numpy()
    return weights


def dequantized(raw: torch.Tensor, type: QuantType) -> torch.Tensor:
    """As `dequantize`, on the device where `raw` lies."""
    raw = raw.contiguous()
    if type.name == "F32":
        return raw.view(torch.float32).clone()
    if type.name == "F16":
        return raw.view(torch.float16).float()
    if type.name == "BF16":
        return (raw.view(torch.int16).int() << 16).view(torch.float32)
    if type.name in INTEGER_TYPES:
        return _from_integers(raw, type)
    raise UnsupportedModelError(
        f"a tensor of type {type.name} cannot be used as weights",
        hint="Use a file whose weights are F32, F16, BF16 or quantised.",
    )


def _from_integers(raw: torch.Tensor, type: QuantType) -> torch.Tensor:
    blocks = raw.view(-1, type.block_bytes)
    weights = torch.empty(len(blocks), type.block_elements, device=raw.device)
    step = (_GPU_CHUNK if raw.is_cuda else _CPU_CHUNK) // type.block_elements
    for start in range(0, len(blocks), step):
        rows = slice(start, start + step)
        weights[rows] = integer_form(blocks[rows], type).float32()
    return weights.view(*raw.shape[:-1], raw.shape[-1] // type.block_bytes * type.block_elements)
