"""Random matrices of every type, packed for the reference."""

import numpy as np

from engine.gguf.types import quant_type
from engine.reference.matrix import Matrix, matrix
from tests.engine.gguf.blocks import random_blocks

Raw = np.ndarray

FLOAT_TYPES = ("F32", "F16", "BF16")


def random_raw(type_name: str, rows: tuple[int, ...], columns: int, seed: int = 0) -> Raw:
    """uint8 [*rows, row_bytes]; normal numbers for float types, random blocks for the others."""
    random = np.random.default_rng(seed)
    if type_name not in FLOAT_TYPES:
        kind = quant_type(type_name)
        return random_blocks(kind, rows, columns // kind.block_elements, random)
    values = random.standard_normal((*rows, columns), np.float32)
    if type_name == "F32":
        return values.view(np.uint8)
    if type_name == "F16":
        return values.astype(np.float16).view(np.uint8)
    high = np.ascontiguousarray(values).view(np.uint16)[..., 1::2]
    return np.ascontiguousarray(high).view(np.uint8)


def packed(raw: Raw, type_name: str, columns: int, *, floats: bool = False) -> Matrix:
    """As the loader packs it."""
    return matrix(raw, quant_type(type_name), columns, float_activations=floats)


def float_matrix(values: np.ndarray) -> Matrix:
    """[N, K] or [E, N, K] float32 as an F32 matrix for float activations."""
    values = np.ascontiguousarray(values, np.float32)
    return packed(values.view(np.uint8), "F32", values.shape[-1], floats=True)


def limb_matrix(values: np.ndarray) -> Matrix:
    """The same for int8 activations."""
    values = np.ascontiguousarray(values, np.float32)
    return packed(values.view(np.uint8), "F32", values.shape[-1])


def random_matrix(rows: int, columns: int, seed: int) -> tuple[np.ndarray, Matrix]:
    """Float32 values [N, K] of about 1 / sqrt(K), and their matrix."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, columns), np.float32) / np.float32(columns**0.5)
    return values, float_matrix(values)


def q8_matrix(rows: int, columns: int, seed: int, stack: int | None = None) -> Matrix:
    """A Q8_0 matrix or stack whose values are about 1 / sqrt(K)."""
    shape = (rows,) if stack is None else (stack, rows)
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (*shape, columns // 32, 34), np.uint8)
    scale = np.full((*shape, columns // 32, 1), columns**-0.5 / 70, np.float16)
    blocks[..., :2] = scale.view(np.uint8)
    return packed(blocks.reshape(*shape, -1), "Q8_0", columns)
