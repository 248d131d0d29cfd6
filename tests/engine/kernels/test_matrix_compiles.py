"""The kernels of matrices and experts pass Triton's compiler, with and without assembly."""

import re
from pathlib import Path
from typing import Any

import torch

from tests.engine.kernels.compiling import assert_compiles
from tests.engine.kernels.packing import random_pair


def _assembly(allowed: bool) -> None:
    from engine.kernels import linear

    linear.assembly = lambda tensor: allowed


def products(kernels: list[Any]) -> None:
    """Every way of sharing the work, and types that take every way through the code planes."""
    from engine.kernels import linear

    some = [random_pair(name, (8,), 128)[1] for name in ("Q5_0", "IQ4_NL", "Q5_0")]
    for allowed, rows, tiles in ((True, 1, 1), (True, 9, 3), (False, 2, 1)):
        _assembly(allowed)
        linear.project(torch.ones(rows, 128), some[:tiles])
    _assembly(True)
    _, weight = random_pair("BF16", (8,), 544)
    linear.linear(torch.ones(2, 544), weight)
    assert len(kernels) == 2 * 3 + 1


def mixtures(kernels: list[Any]) -> None:
    """One row and two, with experts on the device and in host memory; forms that gate and up share
    and other ones."""
    from engine.kernels import experts, inputs
    from tests.engine.kernels import mixtures as cases

    _assembly(True)
    experts.assembly = lambda tensor: True
    cases.WIDTH = 1056  # three segments
    one = cases.mixture()
    two = cases.mixture(("Q4_0", "Q8_0", "Q8_0"), ("Q4_0", "Q8_0", "Q8_0"))
    far, _ = cases.stored(two, 2, 2, cases.Policy())
    for both, rows in ((one, 1), (far, 2)):
        x = inputs.room(rows, cases.WIDTH, torch.device("cpu"))
        experts.mixture_into(torch.ones(rows, cases.WIDTH), None, x, both.packed, cases.USED)
    names = ["top_experts", "gate_up", "down", "combine", "place_few", "assign", "fetch"]
    assert set(names) <= {k.name for k in kernels}
    assert not any(".local" in k.asm["ptx"] for k in kernels)


def flight(kernels: list[Any]) -> None:
    """All of a segment's weights are asked for, 16 bytes at a time, before the wait for earlier
    kernels; nothing moves between threads, and sums are multiplied and added apart (the only fused
    operation is exact)."""
    from engine.kernels import linear

    _assembly(True)
    linear.launch_options = lambda tensor: {"PDL": True, "enable_fp_fusion": False}
    _, weight = random_pair("Q5_K", (16,), 1024)
    linear.linear(torch.ones(2, 1024), weight)
    code, layouts = kernels[-1].asm["ptx"], kernels[-1].asm["ttgir"]
    before, after = code.split("griddepcontrol.wait")
    assert len(re.findall(r"ld\.global\.v4", before)) == 4 * 3 + 1
    assert len(re.findall(r"mma\.sync", after)) == 16
    assert len(re.findall(r"bar\.sync", code)) == 1
    assert "st.shared" not in code
    assert "convert_layout" not in layouts
    assert len(re.findall(r"fma\.rn", code)) == 16 * 4


def test_products_compile(tmp_path: Path) -> None:
    assert_compiles(__name__, "products", tmp_path)


def test_mixtures_compile(tmp_path: Path) -> None:
    assert_compiles(__name__, "mixtures", tmp_path)


def test_loads_are_in_flight(tmp_path: Path) -> None:
    assert_compiles(__name__, "flight", tmp_path)
