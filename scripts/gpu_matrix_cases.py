"""Inputs and expected values of matrices and experts that `gpu_check` compares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from engine.gguf.types import quant_type
from engine.models.weights import Experts

BASE = 96  # outputs of a matrix that differ; a multiple of a tile
EXPERTS, USED = 24, 10
HALVES = {
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q2_K": (80, 82), "IQ3_S": (0,),
    "IQ2_S": (0,), "IQ4_XS": (0,), "IQ4_NL": (0,), "Q5_1": (0, 2), "Q4_0": (0,), "Q8_0": (0,),
    "Q2_0": (0,),
}  # fmt: skip
WORKERS = 14
LEFT_IN_CACHE = 300_000_000  # bytes that a rotation has at least
COPY_TB_S = 4.28


@dataclass(frozen=True)
class Case:
    """A matrix, and the rows that are compared and timed."""

    kind: str
    outputs: int
    columns: int
    rows: tuple[int, ...] = (1, 2, 3, 4, 5, 16, 17)
    timed: tuple[int, ...] = (1, 4, 16)

    @property
    def name(self) -> str:
        return f"{self.kind} {self.outputs}x{self.columns}"


LINEAR = (
    Case("IQ3_S", 16384, 2560, (1, 2, 3, 4, 5, 16, 17, 65), (1, 2, 4, 8, 16, 64, 512)),
    Case("Q4_K", 10240, 2560),
    Case("Q5_K", 2560, 6144),
    Case("Q6_K", 248320, 2560, (1, 4, 16), (1, 4, 16)),
    Case("IQ4_XS", 12288, 2560, (1, 4, 16), (1, 16)),
    Case("Q8_0", 512, 2560, (1, 3, 16), (1, 16)),
    Case("IQ2_S", 640, 2560, (1, 16), (1,)),
    Case("Q2_K", 640, 2560, (1, 16), ()),
    Case("Q5_1", 2560, 640, (1, 2, 17), (1,)),
    Case("Q4_0", 96, 96, (1, 2, 17), ()),
    Case("BF16", 320, 10240, (1, 2, 3, 17), (1, 4, 16)),
    Case("BF16", 10240, 320, (1, 2, 3, 17), (1, 4, 16)),
    Case("BF16", 4, 10240, (1, 4), (1, 16)),
    Case("F32", 512, 2560, (1, 4), (1, 16)),
)
# Types of gate and up (640 x 2560), down (2560 x 640), and of the shared expert's; rows.
MIXTURES = (
    (("IQ3_S", "IQ3_S", "IQ4_NL", "Q6_K", "Q6_K", "Q8_0"), (1, 8, 130)),
    (("Q4_K", "IQ4_XS", "Q5_1", "Q8_0", "Q8_0", "Q8_0"), (1, 8)),
)


def bits(seed: int, *shape: int) -> np.ndarray:
    """uint32 by a hash of (seed, place)."""
    x = np.arange(int(np.prod(shape)), dtype=np.uint32) + np.uint32(seed * 0x9E3779B9 % 2**32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return (x ^ (x >> np.uint32(16))).reshape(shape)


def floats(seed: int, *shape: int) -> np.ndarray:
    """float32 in -1..1."""
    return bits(seed, *shape).view(np.int32).astype(np.float32) * np.float32(2.0**-31)


def stored(seed: int, kind: str, rows: tuple[int, ...], columns: int) -> np.ndarray:
    """Stored rows of a type, uint8 [*rows, row_bytes], with scales of moderate size."""
    if kind in ("F32", "BF16"):
        values = floats(seed, *rows, columns) / np.float32(columns**0.5)
        if kind == "F32":
            return values.view(np.uint8)
        return np.ascontiguousarray(values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    t = quant_type(kind)
    raw = bits(seed, *rows, columns // t.block_elements, t.block_bytes).astype(np.uint8)
    for at in HALVES[kind]:
        raw[..., at + 1] = (raw[..., at + 1] & 0x83) | 0x14  # 2**-10 to 2**-9, both signs
    return raw.reshape(*rows, -1)


def activations(rows: int, columns: int) -> torch.Tensor:
    """Rows of different sizes with a group of zeros; row i is the same for any number of rows."""
    x = np.stack([floats(100 + i, columns) * np.float32(2.0 ** (i % 5 - 2)) for i in range(rows)])
    x[:, 32:64] = 0
    return torch.from_numpy(x)


def mixture_matrices(types: tuple[str, ...]) -> Iterator[tuple[str, np.ndarray, str, int]]:
    """Field of `weights.Experts`, stored rows, type and inputs of each matrix of a mixture."""
    n, k = 640, 2560
    shapes = (("gate", n, k), ("up", n, k), ("down", k, n))
    for seed, (name, outputs, columns) in enumerate(shapes):
        raw = repeated(stored(900 + seed, types[seed], (EXPERTS, BASE), columns), outputs)
        yield f"ffn_{name}_exps", raw, types[seed], columns
        raw = stored(910 + seed, types[3 + seed], (outputs,), columns)
        yield f"ffn_{name}_shexp", raw, types[3 + seed], columns
    yield "ffn_gate_inp", stored(920, "F32", (EXPERTS,), k), "F32", k
    yield "ffn_gate_inp_shexp", stored(921, "F32", (1,), k), "F32", k


def expected() -> Iterator[tuple[str, np.ndarray]]:
    """Every case by the reference."""
    from engine.reference import experts, linear, matrix

    for i, case in enumerate(LINEAR):
        raw = stored(i, case.kind, (min(BASE, case.outputs),), case.columns)
        m = matrix.matrix(raw, quant_type(case.kind), case.columns, float_activations=False)
        yield case.name, linear.linear(activations(max(case.rows), case.columns), m).numpy()
    for types, all_rows in MIXTURES:
        packed = {
            name: matrix.matrix(raw, quant_type(kind), k, float_activations=False)
            for name, raw, kind, k in mixture_matrices(types)
        }
        out = torch.zeros(max(all_rows), 2560)
        experts.mixture_into(out, None, activations(len(out), 2560), Experts(**packed), USED)
        yield f"mixture {' '.join(types)}", out.numpy()


def repeated(raw: np.ndarray, outputs: int) -> np.ndarray:
    """[E, BASE, bytes] -> [E, outputs, bytes]."""
    times = -(-outputs // raw.shape[1])
    return np.ascontiguousarray(np.concatenate([raw] * times, 1)[:, :outputs])
