"""The kernels of float products, norms and hyper-connections pass Triton's compiler."""

import re
from pathlib import Path
from typing import Any

import torch

from tests.engine.kernels.compiling import assert_compiles


def matrix(kind: str, rows: int, columns: int, *, floats: bool = False) -> Any:
    """A matrix without values."""
    from engine.gguf.types import quant_type
    from engine.kernels.matrix import matrix as packed

    size = {"F32": 4, "BF16": 2}[kind]
    raw = torch.zeros(rows, columns * size, dtype=torch.uint8).numpy()
    return packed(raw, quant_type(kind), columns, float_activations=floats, device="cpu")


def products(kernels: list[Any]) -> None:
    """Few rows and many, whole and in parts."""
    from engine.kernels import float_linear
    from engine.kernels.float_linear import float_project

    weights = [matrix("BF16", rows, 2560, floats=True) for rows in (8, 3)]
    float_project(torch.ones(1, 2560), weights)
    float_project(torch.ones(9, 2560), weights)
    float_linear._FULL_CHIP = 1
    float_project(torch.ones(40, 2560), weights)
    float_project(torch.ones(2, 70), [matrix("F32", 8, 70)])
    assert [k.name for k in kernels] == ["few", "few", "add_parts", "many", "few"]
    for kernel in kernels:
        code = kernel.asm["ptx"]
        assert "fma." not in code
        assert len(re.findall(r"bar\.sync", code)) <= 5


def connections(kernels: list[Any]) -> None:
    """One row in two launches, few in three, many in more; little moves between warps."""
    from engine.kernels import hyper_connections, linear

    for module in (hyper_connections, linear):
        module.assembly = lambda tensor: True  # type: ignore[attr-defined]
        module.launch_options = lambda tensor: {"PDL": True, "enable_fp_fusion": False}  # type: ignore[attr-defined]
    down, up, inject = matrix("BF16", 64, 2048), matrix("BF16", 2048, 64), matrix("BF16", 4, 2048)
    norm = torch.ones(2048)
    found = {}
    for rows in (1, 8, 70):
        hyper_connections.hyper_read(torch.ones(rows, 4, 512), norm, down, up, inject, 1e-6)
        found[rows] = {k.name: k.asm["ptx"] for k in kernels}
        kernels.clear()
    assert list(found[1]) == ["low_of_row", "up_of_row"]
    assert list(found[8]) == ["normed_streams", "low", "up_mean"]
    assert list(found[70]) == [
        "normed_streams", "rows_by_matrices", "activate", "quantise", "up_mean"
    ]  # fmt: skip
    products = {"low_of_row": 2, "low": 4}
    for code in (found[1], found[8]):
        for name, ptx in code.items():
            before, after = ptx.split("griddepcontrol.wait")
            if name in products:
                # A segment's weights, and the scales.
                assert len(re.findall(r"ld\.global\.v4", before)) in range(4 * 8 + 1, 4 * 8 + 6)
                assert len(re.findall(r"mma\.sync", after)) == 16 * products[name]
            if name != "normed_streams":
                assert len(re.findall(r"bar\.sync", ptx)) <= 8, name


def norms(kernels: list[Any]) -> None:
    from engine.kernels.norms import normed_input, rms_norm

    rms_norm(torch.ones(2, 256), torch.ones(128), 128, 1e-6)
    normed_input(torch.ones(2, 2560), torch.ones(2560), 1e-6)
    assert len(kernels) == 2


def test_products_compile(tmp_path: Path) -> None:
    assert_compiles(__name__, "products", tmp_path)


def test_connections_compile(tmp_path: Path) -> None:
    assert_compiles(__name__, "connections", tmp_path)


def test_norms_compile(tmp_path: Path) -> None:
    assert_compiles(__name__, "norms", tmp_path)
