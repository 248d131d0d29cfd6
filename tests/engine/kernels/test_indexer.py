"""The block selector against the reference, bit for bit: choices, ties, rings, slots."""

from collections.abc import Sequence

import pytest
import torch

from engine.kernels.indexer import select_blocks
from engine.models.config import IndexerConfig
from engine.reference import indexer as reference
from engine.reference.rotary import rotary_table
from engine.rows import Rows, rows_of
from tests.engine.reference.checks import same_bits

CONTEXT, DRAFTS = 160, 3
CONFIG = IndexerConfig(heads=3, key_length=32, top_k=16)
TABLE = rotary_table(CONTEXT, 8, 1e4)
NORMS = torch.linspace(0.5, 1.5, 32), torch.linspace(1.5, 0.7, 32)
Span = tuple[int, int, int, int]


class Case:
    """The state of three slots on both sides; slots 1 and 2 have a history."""

    def __init__(self, ratio: int) -> None:
        self.ratio = ratio
        self.random = torch.Generator().manual_seed(ratio)
        shapes = (3, ratio + DRAFTS, 32), (3, CONTEXT // ratio + 1, 32)
        self.theirs = tuple(torch.full(shape, torch.nan) for shape in shapes)
        rows = rows_of([(1, 0, 90, 90), (2, 0, 63, 63)])
        self._reference(*self.inputs(rows.count), rows)
        self.ours = tuple(tensor.clone() for tensor in self.theirs)

    def inputs(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Projected queries and keys of `count` rows."""
        return tuple(torch.randn(count, n, generator=self.random) for n in (96, 32))  # type: ignore[return-value]

    def _reference(self, q: torch.Tensor, k: torch.Tensor, rows: Rows) -> torch.Tensor:
        return reference.select_blocks(
            q, k, *NORMS, TABLE, *self.theirs, self.ratio, CONFIG, 1e-6, rows
        )

    def compare(self, spans: Sequence[Span], q: torch.Tensor | None = None) -> torch.Tensor:
        """A window on both sides: the same choices and the same state. Returns the choices."""
        rows = rows_of(list(spans))
        queries, k = self.inputs(rows.count)
        queries = queries if q is None else q
        wanted = self._reference(queries, k, rows)
        actual = select_blocks(
            queries, k, *NORMS, TABLE, *self.ours, self.ratio, CONFIG, 1e-6, rows
        )
        assert same_bits(actual, wanted)
        for ours, theirs in zip(self.ours, self.theirs, strict=True):
            assert same_bits(ours, theirs)
        return actual


@pytest.mark.parametrize("ratio", [1, 2, 4])
def test_windows(ratio: int) -> None:
    """New text longer than its ring, certain rows with drafts, a lone row; then over the drafts."""
    case = Case(ratio)
    case.compare([(0, 0, 5, 5), (1, 90, 3, 1), (2, 63, 1, 1)])
    case.compare([(1, 91, 2, 2), (0, 5, 9, 9)])


def test_ties_take_the_lowest_blocks() -> None:
    """Scores that are all zero: a row that sees more blocks than its budget gets the first."""
    case = Case(4)
    chosen = case.compare([(1, 90, 1, 1), (0, 0, 1, 1)], torch.zeros(2, 96))
    assert chosen.tolist() == [[0, 1, 2, 3], [-1, -1, -1, -1]]


def test_ties_at_the_border(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal keys of some blocks, in chunks of 8 blocks, so that a border lies among equal ones."""
    monkeypatch.setattr("engine.kernels.indexer.CHUNK", 8)
    case = Case(4)
    for state in (case.ours[1], case.theirs[1]):
        state[1, 3:20] = state[1, 3]
    case.compare([(1, 90, 2, 2)])


def test_rows_that_take_turns_in_the_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.kernels.indexer.SCRATCH_BYTES", 1)
    monkeypatch.setattr("engine.kernels.indexer.PROGRAMS", 1)
    Case(1).compare([(1, 90, 2, 2), (2, 63, 1, 1)])


def test_no_rows() -> None:
    case = Case(4)
    chosen = select_blocks(*case.inputs(0), *NORMS, TABLE, *case.ours, 4, CONFIG, 1e-6, rows_of([]))
    assert chosen.shape == (0, 4)
