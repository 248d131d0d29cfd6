"""The recurrence's kernels pass Triton's compiler, at the widths of a model."""

import re
from pathlib import Path
from typing import Any

import torch

from engine.models.config import GatedDeltaNetConfig
from engine.rows import rows_of
from tests.engine.kernels.compiling import assert_compiles

CONFIG = GatedDeltaNetConfig(2, 4, 128, 128, 4, "silu")


def _rule(count: int, state: torch.Tensor) -> torch.Tensor:
    from engine.kernels.gated_delta_net import gated_delta_rule

    qkv, gates, bias = torch.ones(count, CONFIG.channels), torch.ones(count, 4), torch.ones(4)
    rows = rows_of([(0, 0, count, count)])
    return gated_delta_rule(qkv, gates, gates, bias, bias, state, CONFIG, rows)


def operators(kernels: list[Any]) -> None:
    """Every way through the operators, without assembly."""
    from engine.kernels.convolution import causal_convolution
    from engine.kernels.gated_delta_net import UNPREPARED_ROWS, gated_norm

    qkv, ring = torch.ones(3, CONFIG.channels), torch.ones(1, 8, CONFIG.channels)
    conv = torch.ones(CONFIG.channels, 4)
    causal_convolution(qkv, ring, conv, 1, rows_of([(0, 0, 3, 3)]))
    state = torch.ones(1, 4, 128, 128)
    _rule(1, state)
    _rule(UNPREPARED_ROWS + 1, state.transpose(2, 3))
    gated_norm(torch.ones(1, 512), torch.ones(1, 512), torch.ones(128), CONFIG, 1e-6)
    assert len(kernels) == 5
    assert not any("fma." in kernel.asm["ptx"] for kernel in kernels)


def exchanges(kernels: list[Any]) -> None:
    """With assembly: its operands lie so that column c of 8 is thread c of 8."""
    from engine.kernels import gated_delta_net

    gated_delta_net.assembly = lambda tensor: True
    _rule(1, torch.ones(1, 4, 128, 128).transpose(2, 3))
    _rule(gated_delta_net.UNPREPARED_ROWS + 1, torch.ones(1, 4, 128, 128).transpose(2, 3))
    assert len(kernels) == 3
    for kernel in kernels:
        code = kernel.asm["ttgir"]
        layouts = re.findall(r"elementwise_inline_asm .*tensor<(?:16|4)x8xf32, (#\w+)> ->", code)
        assert len(layouts) >= 3
        assert len(set(layouts)) == 1
        written = re.search(rf"^{layouts[0]} = (.*)$", code, re.MULTILINE)
        assert written is not None
        assert "sizePerThread = [1, 1], threadsPerWarp = [4, 8]" in written[1]
        assert "order = [1, 0]" in written[1]
        assert "fma." not in kernel.asm["ptx"]


def test_compiles(tmp_path: Path) -> None:
    assert_compiles(__name__, "operators", tmp_path)


def test_lanes_lie_where_threads_exchange_them(tmp_path: Path) -> None:
    assert_compiles(__name__, "exchanges", tmp_path)
