"""Products of few rows by their assembly give the reference's bits, as far as a CPU can tell."""

import pytest
import torch

from engine.kernels import linear as kernels
from engine.kernels.inputs import as_input
from engine.kernels.linear import FewPlan, linear, project, project_into
from engine.reference import linear as reference
from tests.engine.kernels.packing import activations, random_pair
from tests.engine.kernels.ptx import run_assembly
from tests.engine.kernels.test_assembly import TYPES
from tests.engine.reference.checks import same_bits


def _planned(patch: pytest.MonkeyPatch, rows: int, ahead: int = 0) -> None:
    run_assembly(patch)
    patch.setattr(kernels, "assembly", lambda tensor: True)
    plan = FewPlan(rows=4 if rows > 2 else rows, tiles=2, warps=2, registers=0, ahead=ahead)
    patch.setattr(kernels, "few_plan_for", lambda *of: plan)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize("name", TYPES)
def test_every_type(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tiles, whose segments do not fill the units of two warps."""
    _planned(monkeypatch, rows)
    wanted, weight = random_pair(name, (40,), TYPES[name])
    x = activations(rows, TYPES[name])
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1536), (2, 768), (4, 768), (4, 1024)])
@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("name", ["Q5_K", "F32"])
def test_segments(
    name: str, ahead: int, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several segments, the last one short, or not."""
    _planned(monkeypatch, rows, ahead)
    wanted, weight = random_pair(name, (90,), columns)
    x = activations(rows, columns)
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_several_matrices(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose forms let different numbers of units share a result."""
    _planned(monkeypatch, rows)
    names = ("Q5_0", "F32", "Q2_0", "Q5_0", "F16")
    pairs = [random_pair(name, (37 + i,), 64, i) for i, name in enumerate(names)]
    x = activations(rows, 64)
    results = project(as_input(x), [weight for _, weight in pairs])
    for (wanted, _), got in zip(pairs, results, strict=True):
        assert same_bits(got, reference.linear(x, wanted))


@pytest.mark.parametrize("rows", [1, 3])
def test_added_to_residuals(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _planned(monkeypatch, rows)
    wanted, weight = random_pair("Q5_0", (40,), 64)
    x = activations(rows, 64)
    streams, shares = torch.randn(rows, 4, 40), torch.randn(rows, 4)
    expected = streams + shares[:, :, None] * reference.linear(x, wanted)[:, None]
    project_into(streams, shares, as_input(x), weight)
    assert same_bits(streams, expected)
