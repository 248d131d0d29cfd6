"""Stored bytes on their way to a device, as far as a CPU shows it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.gguf import upload
from engine.gguf.reader import open_gguf
from engine.gguf.types import quant_type
from engine.gguf.writer import write_gguf


@pytest.mark.parametrize("size", [0, 1, 64, 65, 1000])
def test_pieces_through_buffers(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers smaller than the array, pieces smaller than a buffer, each buffer used again."""
    monkeypatch.setattr(upload, "_PIECE_BYTES", 10)
    stored = np.random.default_rng(size).integers(0, 256, (size, 3), np.uint8)
    staging = upload.Staging(torch.device("cpu"), 64, 2)
    for _ in range(2):
        copied = staging.upload(stored)
        assert copied.shape == stored.shape
        assert np.array_equal(copied.numpy(), stored)


def test_bytes_of_a_file(tmp_path: Path) -> None:
    """Without a copy on the CPU, and into memory that is there."""
    path = tmp_path / "model.gguf"
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_gguf(path, {}, {"w": (quant_type("F32"), (2, 3), values)})
    with open_gguf(path) as gguf:
        raw = gguf.raw("w")
        on_cpu = gguf.raw_on("w", "cpu")
        assert on_cpu.data_ptr() == raw.__array_interface__["data"][0]
        assert torch.equal(on_cpu.view(torch.float32), torch.from_numpy(values))
        out = torch.empty(raw.shape, dtype=torch.uint8)
        gguf.fill("w", out, "cpu")
        assert np.array_equal(out, raw)
        del raw, on_cpu
