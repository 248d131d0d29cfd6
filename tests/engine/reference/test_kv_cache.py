"""K/V cells: three formats, slots and positions, bounds of their error."""

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.reference.kv_cache import Cells, KvCache, KvKind, quantise_cells, read, store
from engine.rows import rows_of
from tests.engine.reference.checks import same_bits

KINDS = get_args(KvKind)


def _vectors(rows: int, length: int) -> torch.Tensor:
    random = np.random.default_rng(length)
    sizes = np.exp2(random.integers(-8, 8, (rows, 2, 1))).astype(np.float32)
    return torch.from_numpy(random.standard_normal((rows, 2, length), np.float32) * sizes)


def _read(cells: Cells, slot: int, cell: int, head: int, length: int) -> np.ndarray:
    out = np.full(length, np.nan, np.float32)
    read(cells, slot, cell, head, out)
    return out


@pytest.mark.parametrize("length", [32, 64, 100, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stored_is_read(kind: KvKind, length: int) -> None:
    x = _vectors(5, length)
    cells = Cells.empty(kind, 3, 50, 2, length)
    rows = rows_of([(2, 40, 3, 3), (0, 7, 2, 1)])
    store(cells, x, rows)
    for r, (slot, cell) in enumerate([(2, 40), (2, 41), (2, 42), (0, 7), (0, 8)]):
        for head in range(2):
            wanted = _rounded(kind, x[r, head].numpy())
            assert same_bits(_read(cells, slot, cell, head, length), wanted)
    assert not _read(cells, 1, 40, 0, length).any()
    assert not _read(cells, 2, 43, 1, length).any()


def _rounded(kind: KvKind, x: np.ndarray) -> np.ndarray:
    """One vector as its format keeps it, element by element."""
    if kind == "f32":
        return x
    if kind == "fp16":
        return x.astype(np.float16).astype(np.float32)
    out = np.empty_like(x)
    for start in range(0, len(x), 64):
        group = x[start : start + 64]
        scale = np.float32(np.float16(max(abs(v) for v in group) / np.float32(127)))
        for i, v in enumerate(group):
            code = 0 if scale == 0 else min(max(int(np.rint(v / scale)), -127), 127)
            out[start + i] = np.float32(code) * scale
    return out


@given(
    st.lists(
        st.floats(-8e6, 8e6, width=32) | st.floats(-(2.0**-10), 2.0**-10, width=32),
        min_size=1,
        max_size=70,
    )
)
@settings(max_examples=100, deadline=None)
def test_integer_cells(values: list[float]) -> None:
    """Within half a step of a scale that fp16 rounds by 2**-11, and never beyond 127 steps."""
    x = np.array(values, np.float32)
    codes, bits = quantise_cells(x[None, None])
    scales = np.repeat(bits.view(np.float16).astype(np.float64), 64)[: len(x)]
    assert np.abs(codes.astype(int)).max() <= 127
    amax = np.abs(x).max()
    if amax > 1e-2:  # below, the fp16 scale is subnormal
        error = np.abs(codes[0, 0] * scales - x)
        assert (error <= scales * (0.5 + 127 * 2.0**-10)).all()


def test_zeros_have_no_scale() -> None:
    codes, scales = quantise_cells(np.zeros((1, 1, 64), np.float32))
    assert not codes.any()
    assert not scales.any()


@pytest.mark.parametrize("kind", KINDS)
def test_keys_and_values_may_differ_in_width(kind: KvKind) -> None:
    cache = KvCache.empty(kind, 1, 4, 2, 32, 96)
    store(cache.keys, _vectors(1, 32), rows_of([(0, 0, 1, 1)]))
    store(cache.values, _vectors(1, 96), rows_of([(0, 0, 1, 1)]))
    assert _read(cache.keys, 0, 0, 1, 32).any()
    assert _read(cache.values, 0, 0, 1, 96).any()
