"""Kernels give the reference's bits by their assembly, too, as far as a CPU can tell."""

import pytest

from engine.kernels import linear as kernels
from engine.kernels.linear import Plan, linear
from engine.reference import linear as reference
from tests.engine.kernels.packing import activations, random_pair
from tests.engine.kernels.ptx import run_assembly
from tests.engine.reference.checks import same_bits

# Every way to codes, multipliers, scales and minima.
TYPES = {
    "Q4_0": 160, "Q5_1": 160, "Q8_0": 160, "Q2_0": 192, "MXFP4": 160, "Q2_K": 256, "Q3_K": 256,
    "Q5_K": 256, "Q6_K": 256, "IQ4_XS": 256, "IQ3_S": 512, "IQ2_S": 256, "TQ2_0": 256,
    "BF16": 288, "F32": 608,
}  # fmt: skip


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", TYPES)
def test_assembly(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_assembly(monkeypatch)
    monkeypatch.setattr(kernels, "assembly", lambda tensor: True)
    wanted, weight = random_pair(name, (18,), TYPES[name])
    x = activations(rows, TYPES[name])
    assert same_bits(linear(x, weight), reference.linear(x, wanted))


@pytest.mark.parametrize("rows", [1, 9])
def test_assembly_of_shared_tiles(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(1 if rows == 1 else 2, 1 if rows == 1 else 2, True, 2, 2)
    monkeypatch.setattr(kernels, "plan_for", lambda *of: plan)
    test_assembly("Q5_1", rows, monkeypatch)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("name", ["Q5_K", "IQ2_S", "F32"])
def test_assembly_of_loops(
    name: str, rows: int, split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scales of a segment, of a quad, and of limbs; two segments, the last one short."""
    plan = Plan(1 if rows == 1 else 2, 1 if rows == 1 else 2, split, 2, 2, loop=True)
    monkeypatch.setattr(kernels, "plan_for", lambda *of: plan)
    monkeypatch.setitem(TYPES, name, 768)
    test_assembly(name, rows, monkeypatch)
