"""Embedding tables of every type against the reference, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.gguf.types import quant_type
from engine.kernels.table import Table
from engine.reference import ngram_embedding as reference
from tests.engine.kernels.compiling import assert_compiles
from tests.engine.reference.checks import same_bits
from tests.engine.reference.packing import random_raw

# Floats, types that lie as stored, and of the rest: with a minimum, with a multiplier for 16 codes,
# with both, with a scale for 16 codes, of a codebook.
KINDS = ["F32", "F16", "BF16", "Q4_0", "IQ4_NL", "Q8_0", "Q2_0", "Q5_1", "Q3_K", "Q4_K", "Q5_K"]
KINDS += ["Q6_K", "IQ4_XS", "IQ3_S"]
OTHERS = ["Q4_1", "Q2_K", "NVFP4", "IQ2_S", "MXFP4"]


@pytest.mark.parametrize("name", KINDS + OTHERS)
def test_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken apart a few rows at a time, read by two programs a row."""
    monkeypatch.setattr("engine.kernels.table.CHUNK_ELEMENTS", 700)
    monkeypatch.setattr("engine.kernels.table.BLOCK", 128)
    kind = quant_type(name)
    raw = random_raw(name, (9,), 256)
    indices = torch.tensor([[3, 8], [0, 3]])
    wanted = reference.Table(raw, kind).rows(indices)
    actual = Table(raw, kind, device="cpu").rows(indices)
    assert actual.shape == (2, 2, 256)
    numbers = ~wanted.isnan()
    assert same_bits(actual[numbers], wanted[numbers])
    assert actual[~numbers].isnan().all()
    copies = Table(raw, kind, device="cpu").rows(indices, 3)
    assert same_bits(copies, actual[..., None, :].expand(2, 2, 3, 256))


def test_no_rows() -> None:
    table = Table(random_raw("Q4_0", (4,), 64), quant_type("Q4_0"), device="cpu")
    assert table.rows(torch.empty(0, 3, dtype=torch.int64)).shape == (0, 3, 64)


def compiled(kernels: list[Any]) -> None:
    for name in ("F16", "IQ4_NL", "Q5_K", "IQ3_S"):
        table = Table(random_raw(name, (4,), 256), quant_type(name), device="cpu")
        table.rows(torch.zeros(3, dtype=torch.int64))
    assert len(kernels) == 4
    assert not any("fma." in k.asm["ptx"] for k in kernels)


def test_kernels_compile(tmp_path: Path) -> None:
    assert_compiles(__name__, "compiled", tmp_path)
