"""Matrix products against the reference, bit for bit: every type, odd shapes, both kernels."""

import numpy as np
import pytest
import torch

from engine.gguf.integer_form import INTEGER_TYPES
from engine.gguf.types import quant_type
from engine.kernels import linear as kernels
from engine.kernels.linear import linear
from engine.reference import linear as reference
from tests.engine.kernels.packing import activations, both, poison, random_pair
from tests.engine.reference.checks import Outputs, assert_rows_independent, same_bits
from tests.engine.reference.packing import FLOAT_TYPES, random_raw

ALL = [*sorted(INTEGER_TYPES), *FLOAT_TYPES]


def _columns(type_name: str, about: int) -> int:
    elements = quant_type(type_name).block_elements
    return max(about // elements, 1) * elements


@pytest.mark.parametrize("rows", [1, kernels.FEW + 1])
@pytest.mark.parametrize("type_name", ALL)
def test_every_type(type_name: str, rows: int) -> None:
    """One row, and so many that another kernel is chosen."""
    columns = _columns(type_name, 64)
    wanted, weight = random_pair(type_name, (6,), columns)
    x = activations(rows, columns)
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


@pytest.mark.parametrize("rows", [1, kernels.FEW + 1])
@pytest.mark.parametrize("type_name", ["Q5_0", "Q2_0"])
@pytest.mark.parametrize("columns", [512, 576, 1088])
def test_segments(type_name: str, columns: int, rows: int) -> None:
    """1, 2 and 3 segments, whole and not."""
    wanted, weight = random_pair(type_name, (3,), columns)
    x = activations(rows, columns)
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


def test_more_segments_than_warps() -> None:
    """9 segments; a warp takes one, a program has 8."""
    columns = 8 * 512 + 32
    wanted, weight = random_pair("Q8_0", (3,), columns)
    x = activations(1, columns)
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 5), (4, 33), (5, 40), (33, 515), (6, 1300), (2, 4128)]
)
def test_float_shapes(rows: int, columns: int) -> None:
    wanted, weight = random_pair("F32", (rows,), columns)
    x = activations(2, max(columns, 64))[:, :columns].contiguous()
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


@pytest.mark.parametrize("outputs", [1, 31, 32, 33, 70])
def test_any_number_of_outputs(outputs: int) -> None:
    wanted, weight = random_pair("Q4_1", (outputs,), 64)
    x = activations(2, 64)
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


def test_float_activations() -> None:
    wanted, weight = both(random_raw("Q4_K", (3,), 256), "Q4_K", 256, floats=True)
    x = activations(1, 256)
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


@pytest.mark.parametrize("type_name", ["Q4_0", "F16"])
def test_rows_are_independent(type_name: str) -> None:
    """Across the border between the kernels, too."""
    _, weight = random_pair(type_name, (5,), 64)
    x = activations(kernels.FEW + 2, 64)

    def on_rows(first: int, last: int) -> Outputs:
        return (linear(x[first:last], weight),)

    assert_rows_independent(on_rows, len(x))


def test_more_rows_than_a_tile() -> None:
    wanted, weight = random_pair("Q5_1", (4,), 64)
    x = activations(kernels.ROW_TILE + 3, 64)
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


@pytest.mark.parametrize("rows", [4, kernels.FEW + 1])
def test_a_row_without_numbers_harms_no_other(rows: int) -> None:
    _, weight = random_pair("Q4_K", (5,), 256)
    x = activations(rows, 256)
    clean = linear(x, weight)
    x[1, 7], x[2, 40] = np.nan, np.inf
    mixed = linear(x, weight)
    assert same_bits(mixed[[0, 3]], clean[[0, 3]])
    assert not torch.isfinite(mixed[[1, 2]]).any(), "and nothing hides it"


@pytest.mark.parametrize("type_name", ["Q5_1", "F16"])
def test_every_output_is_written(type_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fresh memory holds does not matter."""
    _, weight = random_pair(type_name, (5,), 64)
    x = activations(2, 64)
    wanted = linear(x, weight)
    poison(monkeypatch)
    assert same_bits(linear(x, weight), wanted)


def test_no_rows() -> None:
    _, weight = random_pair("Q8_0", (5,), 64)
    assert linear(torch.zeros(0, 64), weight).shape == (0, 5)
