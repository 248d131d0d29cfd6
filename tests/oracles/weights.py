"""Weights of a GGUF by name in float64, and the two formulas that every draft block uses."""

from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGUFReader
from torch import Tensor


class Weights:
    """float64 tensors of one or more GGUF files by name, and the keys of the first."""

    def __init__(self, *paths: Path) -> None:
        readers = [GGUFReader(path) for path in paths]
        fields = readers[0].fields
        self.family = fields["general.architecture"].contents()
        self.keys = {
            name.removeprefix(self.family + "."): entry.contents()
            for name, entry in fields.items()
            if name.startswith(self.family + ".")
        }
        self.block = f"blk.{_block_count(readers[-1], self.family) - 1}."
        self._tensors = {tensor.name: tensor for reader in readers for tensor in reader.tensors}

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __getitem__(self, name: str) -> Tensor:
        stored = self._tensors[name]
        rows = gguf.quants.dequantize(stored.data, stored.tensor_type)
        shape = tuple(int(size) for size in reversed(stored.shape))
        return torch.from_numpy(np.array(rows, dtype=np.float64)).reshape(shape)

    def of_block(self, name: str) -> Tensor:
        """A tensor of the draft block."""
        return self[f"{self.block}{name}.weight"]


def _block_count(reader: GGUFReader, family: str) -> int:
    return int(reader.fields[f"{family}.block_count"].contents())


def rms(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm over the last axis with a plain weight."""
    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps) * weight


def rope(rows: Tensor, position: int, rotary: int, theta: float) -> Tensor:
    """Rotate the first `rotary` dims of [heads, width], halves paired."""
    half = rotary // 2
    speed = theta ** (-torch.arange(0, rotary, 2, dtype=torch.float64) / rotary)
    cos, sin = (speed * position).cos(), (speed * position).sin()
    low, high = rows[:, :half], rows[:, half:rotary]
    return torch.cat([low * cos - high * sin, high * cos + low * sin, rows[:, rotary:]], 1)
