"""Products with float matrices against the reference, bit for bit: every kernel, odd shapes."""

import pytest
import torch

from engine.kernels import float_linear
from engine.kernels.float_linear import float_project
from engine.reference import linear as reference
from tests.engine.kernels.packing import Pair, activations, random_pair, tame_pair
from tests.engine.reference.checks import same_bits


def _assert_same(rows: int, columns: int, pairs: list[Pair]) -> None:
    x = activations(rows, max(columns, 64))[:, :columns].contiguous()
    theirs, ours = zip(*pairs, strict=True)
    for actual, wanted in zip(float_project(x, ours), theirs, strict=True):
        assert same_bits(actual, reference.linear(x, wanted))


@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize("columns", [5, 544])
def test_few_rows(rows: int, columns: int) -> None:
    """Several matrices, of two types: launches of one type each."""
    kinds = ("F32", "F32", "F16", "F32")
    _assert_same(
        rows,
        columns,
        [random_pair(kind, (3 + i,), columns, floats=True) for i, kind in enumerate(kinds)],
    )


@pytest.mark.parametrize("rows", [2, 3])
def test_nine_segments(rows: int) -> None:
    """In one program for two rows, and as parts that another launch adds."""
    _assert_same(rows, 8 * 512 + 7, [tame_pair("F32", (5,), 8 * 512 + 7)])


@pytest.mark.parametrize(
    ("kind", "columns"), [("BF16", 96), ("F32", 70), ("BF16", 544), ("F16", 64), ("BF16", 7)]
)
@pytest.mark.parametrize("full_chip", [1, 10**6])
def test_many_rows(
    kind: str, columns: int, full_chip: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole and in parts; groups in pairs and not; a matrix of one tile, and of several blocks."""
    monkeypatch.setattr(float_linear, "_FULL_CHIP", full_chip)
    _assert_same(34, columns, [random_pair(kind, (n,), columns, floats=True) for n in (3, 37)])


def test_no_rows() -> None:
    assert float_project(torch.empty(0, 64), [tame_pair("F32", (6,), 64)[1]])[0].shape == (0, 6)
