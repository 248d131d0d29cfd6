"""The operators as Triton kernels, for one CUDA device."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from engine.kernels import (
    attention,
    convolution,
    experts,
    gated_delta_net,
    hyper_connections,
    kv_cache,
    linear,
    matrix,
    ngram_embedding,
    norms,
    rotary,
    sparse_attention,
    table,
)
from engine.kernels.form import FloatForm
from engine.kernels.inputs import Input
from engine.ops import Ops


def kernel_ops(device: str) -> Ops:
    """All operators on `device`, such as `cuda:0`."""
    return Ops(
        device=device,
        matrix=partial(matrix.matrix, device=device),
        table=partial(table.Table, device=device),
        kv_cache=partial(kv_cache.KvCache.empty, device=device),
        rotary_table=partial(rotary.rotary_table, device=device),
        linear=linear.linear,
        project=linear.project,
        project_into=_project_into,
        rms_norm=norms.rms_norm,
        normed_input=norms.normed_input,
        hyper_read=hyper_connections.hyper_read,
        convolve_into=convolution.convolve_into,
        delta_mixer=gated_delta_net.delta_mixer,
        delta_commit=gated_delta_net.delta_commit,
        attention=attention.attention,
        sparse_attention=sparse_attention.sparse_attention,
        mixture_into=experts.mixture_into,
        ngram_rows=ngram_embedding.ngram_rows,
        ngram_gated_value=ngram_embedding.ngram_gated_value,
    )


def _project_into(residual: torch.Tensor, shares: Any, x: Input, weight: Any) -> None:
    """As `linear.project_into`; what a float matrix gives is added by a launch of its own."""
    if isinstance(weight.form, FloatForm):
        _add_into(residual, shares, linear.linear(x, weight))
    else:
        linear.project_into(residual, shares, x, weight)


def _add_into(residual: torch.Tensor, shares: Any, y: torch.Tensor) -> None:
    if shares is None:
        residual += y
    else:
        hyper_connections.hyper_write(residual, shares, y)
