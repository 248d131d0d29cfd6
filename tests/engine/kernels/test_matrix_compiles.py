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
    _, weight = random_pair("BF16", (8,), 530)  # no whole groups: in the order of float sums
    linear.linear(torch.ones(2, 530), weight)
    assert len(kernels) == 2 * 3 + 1


def mixtures(kernels: list[Any]) -> None:
    """One row, whose inputs warps share, and experts in host memory. `scripts/compile_kernels`
    compiles windows of more rows."""
    from engine.kernels import experts, experts_blocks, experts_combine, experts_route, inputs
    from tests.engine.kernels import mixtures as cases

    _assembly(True)
    experts.assembly = lambda tensor: True
    one = "Q4_0", "Q4_0", "Q4_0"
    _, store = cases.stored(cases.mixture(one, one), 2, 2, cases.Policy())
    store.begin(experts_blocks.blocks_of(torch.zeros(2, 2, dtype=torch.int32), cases.COUNT, 8))
    store.fetch(0)
    cases.WIDTH = 544  # two segments
    packed = cases.mixture(one, one).packed
    x = inputs.room(1, cases.WIDTH, torch.device("cpu"))
    experts.mixture_into(torch.ones(1, cases.WIDTH), None, x, packed, cases.USED)
    # Larger windows choose and add up in launches of their own.
    choice = experts_route.room_for(17, cases.USED, torch.device("cpu"))
    experts_route.choose(torch.ones(17, cases.COUNT), choice)
    sums = experts_combine.Sums(torch.ones(17, 64), None, choice.shares, torch.ones(17, 1))
    experts_combine.combine_into(sums, torch.ones(17 * cases.USED, 64), torch.ones(17, 64))
    names = ["place_few", "assign", "fetch", "rows_by_matrices", "gate_up", "down"]
    assert {*names, "top_experts", "combine"} <= {k.name for k in kernels}


def flight(kernels: list[Any]) -> None:
    """All of a segment's weights are asked for, 16 bytes at a time, before the wait for earlier
    kernels; nothing moves between threads, and sums are multiplied and added apart (the only fused
    operation is exact)."""
    from engine.kernels import linear

    _assembly(True)
    linear.launch_options = lambda tensor: {"PDL": True, "enable_fp_fusion": False}
    _, weight = random_pair("Q5_K", (16,), 1024)
    linear.linear(torch.ones(5, 1024), weight)
    code, layouts = kernels[-1].asm["ptx"], kernels[-1].asm["ttgir"]
    before, after = code.split("griddepcontrol.wait")
    assert len(re.findall(r"ld\.global\.v4", before)) == 4 * 3 + 1
    assert len(re.findall(r"mma\.sync", after)) == 16
    assert len(re.findall(r"bar\.sync", code)) == 1
    assert "st.shared" not in code
    assert "convert_layout" not in layouts
    assert len(re.findall(r"fma\.rn", code)) == 16 * 4


def few_rows(kernels: list[Any]) -> None:
    """Two quads of two units are asked for before the wait; each product of tensor cores
    makes four terms, and sums meet in shared memory by one barrier."""
    from engine.kernels import linear

    _assembly(True)
    linear.launch_options = lambda tensor: {"PDL": True, "enable_fp_fusion": False}
    _, weight = random_pair("Q5_K", (16,), 1024)
    linear.linear(torch.ones(4, 1024), weight)
    code, layouts = kernels[-1].asm["ptx"], kernels[-1].asm["ttgir"]
    before, after = code.split("griddepcontrol.wait")
    assert len(re.findall(r"ld\.global\.v4", before)) == 2 * (2 * 2 + 2)
    assert len(re.findall(r"ld\.global\.v2", before)) == 2 * 2
    assert len(re.findall(r"mma\.sync", after)) == 16 * 2
    assert len(re.findall(r"fma\.rn", code)) == 16 * 4
    assert len(re.findall(r"bar\.sync", code)) == 1
    assert "convert_layout" not in layouts


def test_products_compile(tmp_path: Path) -> None:
    assert_compiles(__name__, "products", tmp_path)


def test_few_rows_compile(tmp_path: Path) -> None:
    assert_compiles(__name__, "few_rows", tmp_path)


def test_mixtures_compile(tmp_path: Path) -> None:
    assert_compiles(__name__, "mixtures", tmp_path)


def test_loads_are_in_flight(tmp_path: Path) -> None:
    assert_compiles(__name__, "flight", tmp_path)
