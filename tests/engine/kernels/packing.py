"""The same random matrices for the reference and for kernels."""

import numpy as np
import pytest
import torch

from engine.gguf.types import quant_type
from engine.kernels import matrix as kernels
from engine.reference import matrix as reference
from tests.engine.reference.packing import random_raw

Pair = tuple[reference.Matrix, kernels.Matrix]


def both(raw: np.ndarray, type_name: str, columns: int, *, floats: bool = False) -> Pair:
    """Stored rows as the reference and as the device packs them."""
    kind = quant_type(type_name)
    return (
        reference.matrix(raw, kind, columns, float_activations=floats),
        kernels.matrix(raw, kind, columns, float_activations=floats, device="cpu"),
    )


def random_pair(
    type_name: str, rows: tuple[int, ...], columns: int, seed: int = 0, *, floats: bool = False
) -> Pair:
    """[N] or [E, N] random rows."""
    return both(random_raw(type_name, rows, columns, seed), type_name, columns, floats=floats)


def tame_pair(
    type_name: str, rows: tuple[int, ...], columns: int, seed: int = 0, *, floats: bool = False
) -> Pair:
    """As `random_pair`, with weights of about 1 / sqrt(K): F32, BF16, Q8_0 or Q4_0."""
    random = np.random.default_rng(seed)
    if type_name in ("F32", "BF16"):
        values = random.standard_normal((*rows, columns), np.float32) / np.float32(columns**0.5)
        if type_name == "BF16":
            values = np.ascontiguousarray(values.view(np.uint16)[..., 1::2])
        return both(values.view(np.uint8), type_name, columns, floats=floats)
    size = {"Q8_0": 34, "Q4_0": 18}[type_name]
    blocks = random.integers(0, 256, (*rows, columns // 32, size), np.uint8)
    scale = np.full((*rows, columns // 32, 1), columns**-0.5 / 2 ** (size // 5), np.float16)
    blocks[..., :2] = scale.view(np.uint8)
    return both(blocks.reshape(*rows, -1), type_name, columns)


def activations(rows: int, columns: int, seed: int = 5) -> torch.Tensor:
    """Rows of very different sizes, and a group of zeros."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, columns), np.float32)
    x *= np.exp2(random.integers(-6, 6, (rows, 1))).astype(np.float32)
    x[0, -32:] = 0
    return torch.from_numpy(x)


def poison(patch: pytest.MonkeyPatch) -> None:
    """Fresh memory is all ones: NaNs and -1."""
    empty = torch.empty

    def poisoned(*shape: object, **options: object) -> torch.Tensor:
        made = empty(*shape, **options)
        if made.numel():
            made.view(torch.uint8).fill_(255)
        return made

    patch.setattr(torch, "empty", poisoned)
