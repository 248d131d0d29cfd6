"""What is stored, against the reference, bit for bit."""

from typing import get_args

import pytest
import torch

from engine.kernels.kv_cache import Cells, KvCache, KvKind, store
from engine.reference import kv_cache as reference
from engine.rows import rows_of
from tests.engine.kernels.caches import same_cells

KINDS = get_args(KvKind)
ROWS = rows_of([(2, 40, 3, 3), (0, 7, 2, 1)])


def _vectors(length: int) -> torch.Tensor:
    """Sizes of many powers of two; one row of zeros, one beyond fp16, one of tiny numbers."""
    random = torch.Generator().manual_seed(length)
    sizes = torch.exp2(torch.randint(-8, 8, (5, 2, 1), generator=random).float())
    x = torch.randn(5, 2, length, generator=random) * sizes
    x[0, 0] = 0
    x[1, 1, 3], x[2, 0, 5], x[2, 1, 6] = 1e9, torch.nan, torch.inf
    x[3] *= 1e-7
    return x


@pytest.mark.parametrize("length", [20, 32, 64, 100, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_same_bits(kind: KvKind, length: int) -> None:
    x = _vectors(length)
    actual = Cells.empty(kind, 3, 50, 2, length, device="cpu")
    wanted = reference.Cells.empty(kind, 3, 50, 2, length)
    store(actual, x, ROWS)
    reference.store(wanted, x, ROWS)
    if kind == "f32":
        assert same_cells(actual, wanted)
    else:  # a NaN may have other bits
        clean = x.clone()
        clean[2] = 0
        store(actual, clean, ROWS)
        reference.store(wanted, clean, ROWS)
        assert same_cells(actual, wanted)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_no_numbers_go_into_the_scale(value: float) -> None:
    x = torch.ones(5, 2, 128)
    x[1, 0, 70] = value
    cells = Cells.empty("int8", 3, 50, 2, 128, device="cpu")
    store(cells, x, ROWS)
    scales, codes = cells.scales[2, 41, 0], cells.values[2, 41, 0]
    assert torch.isfinite(scales[0])
    assert scales[1].isnan() if value != value else scales[1] == torch.inf
    assert (codes[:64] == 127).all()
    assert not codes[64:].any()


@pytest.mark.parametrize("kind", KINDS)
def test_keys_and_values_may_differ_in_width(kind: KvKind) -> None:
    cache = KvCache.empty(kind, 1, 4, 2, 32, 96, device="cpu")
    assert cache.keys.values.shape == (1, 4, 2, 32)
    assert cache.values.values.shape == (1, 4, 2, 96)
    assert cache.values.scales.shape == (1 if kind == "int8" else 0, 4, 2, 2)


@pytest.mark.parametrize("kind", ["f32", "fp16", "int8"])
def test_a_slots_cells_lie_together_as_those_of_the_reference(kind: KvKind) -> None:
    """What copies of a slot are made of: the guard behind the cells is no part of it."""
    sizes = (kind, 2, 10, 3, 70, 32)
    mine = KvCache.empty(*sizes, device="cpu").tensors
    theirs = reference.KvCache.empty(*sizes).tensors
    assert [tensor.shape for tensor in mine] == [tensor.shape for tensor in theirs]
    for tensor, other in zip(mine, theirs, strict=True):
        assert tensor.element_size() == other.element_size()
        assert tensor[1, :7].is_contiguous()
        assert other[1, :7].is_contiguous()
