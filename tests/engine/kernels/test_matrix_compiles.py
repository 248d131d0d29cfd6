"""The kernels of matrices and experts pass Triton's compiler, with and without assembly."""

import re
from pathlib import Path
from typing import Any

import torch

from tests.engine.kernels.compiling import assert_compiles
from tests.engine.kernels.packing import random_pair


def _assembly(allowed: bool) -> None:
    from engine.kernels import experts, linear

    for module in (experts, linear):
        module.assembly = lambda tensor: allowed


def products(kernels: list[Any]) -> None:
    """One row and many, of types that take every way through the code planes."""
    from engine.kernels.linear import FEW, linear

    for allowed, names in ((True, ("Q5_0", "IQ4_NL")), (False, ("Q2_0",))):
        _assembly(allowed)
        for name in names:
            _, weight = random_pair(name, (8,), 128)
            linear(torch.ones(1, 128), weight)
            linear(torch.ones(FEW + 1, 128), weight)
    _, weight = random_pair("BF16", (8,), 544)
    linear(torch.ones(2, 544), weight)
    assert len(kernels) == 3 * 4 + 1
    assert not any("fma." in k.asm["ptx"] for k in kernels if k.name != "quantise")


def mixtures(kernels: list[Any]) -> None:
    """Experts by address, one by one and grouped; the router."""
    from engine.kernels import experts

    _assembly(True)
    (_, gate), (_, down), (_, router) = (
        random_pair("Q8_0", (3, 64), 64), random_pair("Q8_0", (3, 64), 64),
        random_pair("F32", (3,), 64),
    )  # fmt: skip
    x, chosen, shares = torch.ones(2, 64), torch.zeros(2, 2, dtype=torch.int32), torch.ones(2, 2)
    experts.route(x, router, 2)
    experts.mixture(x, chosen, shares, gate, gate, down)
    experts.GROUPED_FROM = 1
    experts.groups_of = lambda chosen, count: experts_groups(count)
    experts.mixture(x, chosen, shares, gate, gate, down)
    assert {"top_experts", "few_gated", "few", "many", "weighted"} <= {k.name for k in kernels}


def experts_groups(count: int) -> Any:
    """Groups whose values do not matter."""
    from engine.kernels.linear import ROW_TILE, Groups

    minus = torch.full((ROW_TILE,), -1, dtype=torch.int32)
    return Groups(minus[:1], minus, 4)


def flight(kernels: list[Any]) -> None:
    """A row's loads of a segment precede what uses them, and few waits are left: threads exchange
    only the sums of segments."""
    from engine.kernels.linear import linear

    _assembly(True)
    _, weight = random_pair("IQ3_S", (32,), 1024)
    linear(torch.ones(1, 1024), weight)
    code = kernels[-1].asm["ptx"]
    before, after = re.split(r"bar\.sync", code, maxsplit=1)
    assert len(re.findall(r"ld\.global\S*\.v4", before)) == 16
    assert len(re.findall(r"bar\.sync", after)) <= 2
    assert "dp4a" not in before


def test_products_compile(tmp_path: Path) -> None:
    assert_compiles(__name__, "products", tmp_path)


def test_mixtures_compile(tmp_path: Path) -> None:
    assert_compiles(__name__, "mixtures", tmp_path)


def test_loads_are_in_flight(tmp_path: Path) -> None:
    assert_compiles(__name__, "flight", tmp_path)
