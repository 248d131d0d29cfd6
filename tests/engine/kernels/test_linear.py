"""Matrix products against the reference, bit for bit: every type, odd shapes, every plan."""

import numpy as np
import pytest
import torch

from engine.gguf.integer_form import INTEGER_TYPES
from engine.gguf.types import quant_type
from engine.kernels import linear as kernels
from engine.kernels.inputs import as_input
from engine.kernels.linear import Plan, linear, project, project_into
from engine.reference import linear as reference
from tests.engine.kernels.packing import activations, both, poison, random_pair
from tests.engine.reference.checks import Outputs, assert_rows_independent, same_bits
from tests.engine.reference.packing import FLOAT_TYPES, random_raw

ALL = [*sorted(INTEGER_TYPES), *FLOAT_TYPES]


def _columns(type_name: str, about: int) -> int:
    elements = quant_type(type_name).block_elements
    return max(about // elements, 1) * elements


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("type_name", ALL)
def test_every_type(type_name: str, rows: int) -> None:
    """One row, for which a program is another one, and more."""
    columns = _columns(type_name, 64)
    wanted, weight = random_pair(type_name, (6,), columns)
    x = activations(rows, columns)
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


@pytest.mark.parametrize("columns", [512, 576, 1088])
def test_segments(columns: int) -> None:
    """1, 2 and 3 segments, whole and not."""
    wanted, weight = random_pair("Q2_0", (3,), columns)
    x = activations(1, columns)
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


# Tiles of their own, and whole ones of few programs.
PLANS = [
    Plan(columns=1, blocks=1, split=False, tiles=1, warps=2),
    Plan(columns=1, blocks=1, split=True, tiles=2, warps=4),
    Plan(columns=2, blocks=1, split=False, tiles=1, warps=1),
    Plan(columns=2, blocks=2, split=True, tiles=3, warps=2, loop=True),
    Plan(columns=2, blocks=4, split=False, tiles=1, warps=2, loop=True),
]


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two segments, three tiles and more rows than a program has, all to the same bits."""
    monkeypatch.setattr(kernels, "plan_for", lambda *of: plan)
    wanted, weight = random_pair("Q5_0", (37,), 544)
    x = activations(2 if plan.columns == 1 else 8 * plan.blocks + 3, 544)
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


def test_several_matrices_of_an_input() -> None:
    """Of one form, of another, and of floats, in any order."""
    names = ("Q5_0", "F32", "Q2_0", "Q5_0", "Q5_0", "Q2_0")
    pairs = [random_pair(name, (9 + i,), 64, i) for i, name in enumerate(names)]
    x = activations(2, 64)
    results = project(as_input(x), [weight for _, weight in pairs])
    for (wanted, _), got in zip(pairs, results, strict=True):
        assert same_bits(got, reference.linear(x, wanted))


@pytest.mark.parametrize("split", [False, True])
def test_added_to_residuals(split: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(columns=2, blocks=1, split=split, tiles=2, warps=2)
    monkeypatch.setattr(kernels, "plan_for", lambda *of: plan)
    wanted, weight = random_pair("Q5_0", (20,), 64)
    x = activations(3, 64)
    y = reference.linear(x, wanted)
    plain, streams, shares = torch.randn(3, 20), torch.randn(3, 4, 20), torch.randn(3, 4)
    added, parted = plain + y, streams + shares[:, :, None] * y[:, None]
    project_into(plain, None, x, weight)
    project_into(streams, shares, as_input(x), weight)
    assert same_bits(plain, added)
    assert same_bits(streams, parted)


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
    """Across the borders of blocks, too."""
    _, weight = random_pair(type_name, (5,), 64)
    x = activations(10, 64)

    def on_rows(first: int, last: int) -> Outputs:
        return (linear(x[first:last], weight),)

    assert_rows_independent(on_rows, len(x))


@pytest.mark.parametrize("rows", [17, 70])
def test_many_rows(rows: int) -> None:
    wanted, weight = random_pair("Q5_1", (4,), 64)
    x = activations(rows, 64)
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


def test_a_row_without_numbers_harms_no_other() -> None:
    _, weight = random_pair("Q4_K", (5,), 256)
    x = activations(4, 256)
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
