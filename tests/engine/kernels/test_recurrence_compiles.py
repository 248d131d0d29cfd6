"""The recurrence's kernels pass Triton's compiler, at the widths of a model."""

import re
from pathlib import Path
from typing import Any

import torch

from engine.models.config import GatedDeltaNetConfig
from engine.rows import rows_of
from tests.engine.kernels.compiling import assert_compiles

CONFIG = GatedDeltaNetConfig(2, 4, 128, 128, 4, "silu")


# Of eight columns one a thread; of a row's 128 four a thread, and of what becomes of them one.
LAYOUTS = {
    8: "sizePerThread = [1, 1], threadsPerWarp = [4, 8], warpsPerCTA = [{}, 1], order = [1, 0]",
    32: "sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [{}, 1], order = [1, 0]",
    128: "sizePerThread = [1, 4], threadsPerWarp = [1, 32], warpsPerCTA = [{}, 1], order = [1, 0]",
}


def _mixer(count: int, state: torch.Tensor) -> None:
    from engine.kernels.gated_delta_net import delta_commit, delta_mixer

    qkv, gate, gates = (torch.ones(count, n) for n in (CONFIG.channels, 512, 4))
    conv, ring = torch.ones(CONFIG.channels, 4), torch.ones(1, 8, CONFIG.channels)
    head, norm = torch.ones(4), torch.ones(128)
    rows = rows_of([(0, 0, count, count)])
    kept = delta_mixer(
        qkv, gate, gates, gates, conv, ring, head, head, state, norm, CONFIG, 1e-6, rows
    )[1]
    if count == 1:
        delta_commit(kept, head, head, state, CONFIG, rows)


def operators(kernels: list[Any]) -> None:
    """Every way through the operators, without assembly."""
    from engine.kernels.convolution import convolve_into
    from engine.kernels.gated_delta_net import MOST_ROWS

    x, ring, conv = torch.ones(3, 512), torch.ones(1, 12, 512), torch.ones(512, 4)
    convolve_into(x, x, x, ring, conv, 3, rows_of([(0, 0, 3, 3)]))
    state = torch.ones(1, 4, 128, 128)
    for count in (1, 2, MOST_ROWS + 1):
        _mixer(count, state if count == 1 else state.transpose(2, 3))
    names = [kernel.name for kernel in kernels]
    mixer = ["arrange", "walk_spans", "finish_rows"]
    assert names == ["convolve", "mix_row", "walk_spans", *mixer, *mixer]
    assert not any("fma." in kernel.asm["ptx"] for kernel in kernels)


def exchanges(kernels: list[Any]) -> None:
    """With assembly: its operands lie in the threads that it speaks of."""
    from engine.kernels import gated_delta_net

    gated_delta_net.assembly = lambda tensor: True
    gated_delta_net.schedulers = lambda device: 43  # three tiles
    for count in (1, 2, gated_delta_net.MOST_ROWS + 1):
        _mixer(count, torch.ones(1, 4, 128, 128).transpose(2, 3))
    assert len(kernels) == 8
    for kernel in kernels:
        code = kernel.asm["ttgir"]
        operands = set(
            re.findall(r"elementwise_inline_asm .*tensor<\d+x(\d+)xf32, (#\w+)> ->", code)
        )
        for columns, layout in operands:
            written = re.search(rf"^{layout} = (.*)$", code, re.MULTILINE)
            assert written is not None
            wanted = LAYOUTS[int(columns)].format(kernel.metadata.num_warps)
            assert wanted in written[1], (kernel.name, columns, written[1])
        columns = {int(number) for number, _ in operands}
        found = {"walk_spans": {8}, "mix_row": {8, 32, 128}}.get(kernel.name, {32, 128})
        assert columns == found
        assert "fma." not in kernel.asm["ptx"]


def test_compiles(tmp_path: Path) -> None:
    assert_compiles(__name__, "operators", tmp_path)


def test_lanes_lie_where_threads_exchange_them(tmp_path: Path) -> None:
    assert_compiles(__name__, "exchanges", tmp_path)
