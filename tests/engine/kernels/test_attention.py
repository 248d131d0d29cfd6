"""Attention against the reference, bit for bit: formats, selections, slots, row independence."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest
import torch

from engine.kernels import kv_cache
from engine.kernels.attention import attention
from engine.kernels.kv_cache import KvKind
from engine.models.config import AttentionConfig
from engine.reference import attention as reference
from engine.reference import kv_cache as reference_cache
from engine.reference.rotary import rotary_table
from engine.rows import rows_of
from tests.engine.kernels.caches import copy_cells, same_cells
from tests.engine.reference.checks import same_bits

KINDS = get_args(KvKind)
CONTEXT = 160
TABLE = rotary_table(CONTEXT, 8, 1e4)
Span = tuple[int, int, int, int]


class Case:
    """One layer's caches on both sides, with a history that the reference wrote."""

    def __init__(self, kind: KvKind, heads: int, kv_heads: int, length: int, seed: int = 0) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.config = AttentionConfig(heads, kv_heads, length, length, 8, 1e4)
        shape = (3, CONTEXT, kv_heads, length, length)
        self.ours = kv_cache.KvCache.empty(kind, *shape, device="cpu")
        self.theirs = reference_cache.KvCache.empty(kind, *shape)
        self.norms = torch.linspace(0.5, 1.5, length), torch.linspace(3, 1, length)
        for slot, count in ((1, 70), (2, 63)):
            rows = rows_of([(slot, 0, count, count)])
            for cells in (self.theirs.keys, self.theirs.values):
                reference_cache.store(cells, self._randn(count, kv_heads, length), rows)
        copy_cells(self.ours.keys, self.theirs.keys)
        copy_cells(self.ours.values, self.theirs.values)

    def _randn(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.random)

    def inputs(self, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Projected queries with gates, keys and values of `count` rows."""
        c = self.config
        width = c.kv_heads * c.key_length
        return (
            self._randn(count, c.heads * 2 * c.key_length),
            self._randn(count, width),
            self._randn(count, width),
        )

    def compare(self, spans: Sequence[Span], ratio: int = 0, budget: int = 0) -> None:
        """Computes a window on both sides: outputs and cells must have the same bits."""
        rows = rows_of(list(spans))
        selected = _choices(rows.positions.tolist(), ratio, budget) if ratio else None
        given = (*self.inputs(rows.count), *self.norms, TABLE)
        rest = (selected, ratio, self.config, 1e-6, rows)
        wanted = reference.attention(*given, self.theirs, *rest)
        assert same_bits(attention(*given, self.ours, *rest).values, wanted)
        assert same_cells(self.ours.keys, self.theirs.keys)
        assert same_cells(self.ours.values, self.theirs.values)


def _choices(positions: list[int], ratio: int, budget: int) -> torch.Tensor:
    """Random ascending complete blocks of each row, padded with -1."""
    random = np.random.default_rng(len(positions))
    chosen = np.full((len(positions), budget), -1, np.int32)
    for line, position in zip(chosen, positions, strict=True):
        complete = (position + 1) // ratio
        count = min(complete, budget)
        line[:count] = np.sort(random.permutation(complete)[:count])
    return torch.from_numpy(chosen)


@pytest.mark.parametrize("kind", KINDS)
def test_formats(kind: KvKind) -> None:
    """The row that fills a block of 64."""
    Case(kind, 2, 1, 32).compare([(2, 63, 1, 1)])


def test_a_window_of_several_slots() -> None:
    """A new conversation, a certain row with a draft, a lone row."""
    Case("int8", 2, 1, 32).compare([(0, 0, 1, 1), (1, 70, 2, 1), (2, 63, 1, 1)])


@pytest.mark.parametrize(("ratio", "budget"), [(4, 5), (2, 34), (1, 3)])
def test_selected_cells(ratio: int, budget: int) -> None:
    """Fewer blocks than the budget, more than 64 cells, no tail."""
    Case("int8", 2, 1, 32).compare([(0, 0, 1, 1), (1, 71, 1, 1)], ratio, budget)


# Groups of 3 and 1 heads; heads of less than a group of 32, of a group and a part, of two segments.
@pytest.mark.parametrize(("heads", "kv_heads", "length"), [(6, 2, 20), (2, 2, 48), (1, 1, 520)])
def test_shapes(heads: int, kv_heads: int, length: int) -> None:
    Case("f32", heads, kv_heads, length).compare([(0, 0, 2, 2)])


def test_rows_that_take_turns_in_the_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.kernels.attention.SCRATCH_BYTES", 1)
    Case("int8", 2, 1, 32).compare([(0, 0, 1, 1), (2, 63, 1, 1)], 4, 2)


@pytest.mark.parametrize(("ratio", "budget"), [(0, 0), (2, 34)])
def test_one_program_for_all_blocks(
    ratio: int, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.kernels.attention.WHOLE_PROGRAMS", 1)
    Case("int8", 2, 1, 32).compare([(1, 71, 1, 1), (0, 0, 1, 1)], ratio, budget)


def test_one_program_for_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little room for one program a row, and too few programs for one a block."""
    monkeypatch.setattr("engine.kernels.attention.PROGRAMS", 1)
    monkeypatch.setattr("engine.kernels.attention.SCRATCH_BYTES", 1)
    Case("int8", 2, 1, 32).compare([(1, 71, 1, 1)])


@pytest.mark.parametrize(("ratio", "budget"), [(0, 0), (4, 18), (4, 3)])
def test_rows_that_go_together(ratio: int, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows of one slot, two slots in four rows, fewer than four rows; the second budget is
    just enough for all blocks of the last row."""
    monkeypatch.setattr("engine.kernels.attention.PROGRAMS", 1)
    Case("int8", 6, 2, 32).compare([(1, 67, 5, 5), (0, 0, 2, 2)], ratio, budget)


def test_large_scores_do_not_overflow() -> None:
    case = Case("f32", 2, 1, 32)
    case.norms = case.norms[0] * 1e3, case.norms[1] * 1e3
    case.compare([(2, 63, 1, 1)])


def test_no_rows() -> None:
    case = Case("int8", 2, 1, 32)
    rows = rows_of([])
    out = attention(
        *case.inputs(0), *case.norms, TABLE, case.ours, None, 0, case.config, 1e-6, rows
    )
    assert out.values.shape == (0, 64)
