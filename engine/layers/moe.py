"""The feed-forward part of a block: routed experts in router order, then the shared expert."""

from __future__ import annotations

import torch

from engine.layers.context import Context
from engine.models import weights


def mixture_of_experts(w: weights.Experts, x: torch.Tensor, context: Context) -> torch.Tensor:
    """float32 [R, D] -> [R, D]."""
    ops = context.ops
    experts, shares = ops.route(x, w.ffn_gate_inp, context.config.experts.used)
    routed = ops.mixture(x, experts, shares, w.ffn_gate_exps, w.ffn_up_exps, w.ffn_down_exps)
    shared = ops.shared_expert(
        x, w.ffn_gate_shexp, w.ffn_up_shexp, w.ffn_down_shexp, w.ffn_gate_inp_shexp
    )
    return routed + shared  # type: ignore[no-any-return]
