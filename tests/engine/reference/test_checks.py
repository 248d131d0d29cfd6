"""The checkers themselves: an operator with a defect must not pass them."""

import numpy as np
import pytest
import torch

from engine.gguf.types import quant_type
from engine.reference.linear import linear
from engine.reference.matrix import Matrix, matrix
from tests.engine.reference.checks import Outputs, assert_all_written, assert_rows_independent

RANDOM = np.random.default_rng(0)


def _float_matrix(rows: int, columns: int) -> Matrix:
    raw = RANDOM.standard_normal((rows, columns), np.float32).view(np.uint8)
    return matrix(raw, quant_type("F32"), columns, float_activations=True)


def test_a_sum_split_by_the_number_of_rows_is_caught() -> None:
    weight = _float_matrix(33, 1024)
    halves = [
        weight._replace(columns=512, values=np.ascontiguousarray(weight.values[:, :, part]))
        for part in (slice(0, 512), slice(512, 1024))
    ]
    quarters = [
        weight._replace(
            columns=256, values=np.ascontiguousarray(weight.values[:, :, at : at + 256])
        )
        for at in range(0, 1024, 256)
    ]
    x = torch.from_numpy(RANDOM.standard_normal((16, 1024), np.float32))

    def split(parts: list[Matrix], rows: torch.Tensor) -> torch.Tensor:
        width = parts[0].columns
        total = linear(rows[:, :width].contiguous(), parts[0])
        for i, part in enumerate(parts[1:], 1):
            total = total + linear(rows[:, i * width : (i + 1) * width].contiguous(), part)
        return total

    def defective(first: int, last: int) -> Outputs:
        rows = x[first:last]
        return (split(halves if len(rows) > 8 else quarters, rows),)

    def sound(first: int, last: int) -> Outputs:
        return (split(halves, x[first:last]),)

    assert_rows_independent(sound)
    with pytest.raises(AssertionError, match="row 0 of 9 differs"):
        assert_rows_independent(defective)


def test_an_element_that_is_not_written_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaves_one_out() -> Outputs:
        out = torch.empty(4)
        out[:3] = 1
        return (out,)

    with pytest.raises(AssertionError):
        assert_all_written(leaves_one_out, monkeypatch)
