"""The recurrence's kernels pass Triton's compiler, at the widths of a model."""

from pathlib import Path

import torch

from engine.models.config import GatedDeltaNetConfig
from engine.rows import rows_of
from tests.engine.kernels.compiling import assert_compiles


def operators() -> None:
    """Every way through the operators."""
    from engine.kernels.convolution import causal_convolution
    from engine.kernels.gated_delta_net import UNPREPARED_ROWS, gated_delta_rule, gated_norm

    config = GatedDeltaNetConfig(2, 4, 128, 128, 4, "silu")
    norm, bias, conv = torch.ones(128), torch.ones(4), torch.ones(config.channels, 4)
    for count in (1, UNPREPARED_ROWS + 1):
        rows = rows_of([(0, 0, count, count)])
        qkv, gates, inner = (torch.ones(count, n) for n in (config.channels, 4, 512))
        causal_convolution(qkv, torch.ones(1, 8, config.channels), conv, 1, rows)
        state = torch.ones(1, 4, 128, 128)
        state = state if count > 1 else state.transpose(2, 3)  # both ways to lie in memory
        gated_delta_rule(qkv, gates, gates, bias, bias, state, config, rows)
        gated_norm(inner, inner, norm, config, 1e-6)


def test_compiles(tmp_path: Path) -> None:
    assert_compiles(__name__, "operators", tmp_path)
