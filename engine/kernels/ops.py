"""The operators as Triton kernels, for one CUDA device."""

from __future__ import annotations

from functools import partial

from engine.kernels import (
    attention,
    convolution,
    experts,
    gated_delta_net,
    hyper_connections,
    indexer,
    kv_cache,
    linear,
    matrix,
    ngram_embedding,
    norms,
    rotary,
    table,
)
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
        rms_norm=norms.rms_norm,
        hyper_read=hyper_connections.hyper_read,
        hyper_write=hyper_connections.hyper_write,
        causal_convolution=convolution.causal_convolution,
        gated_delta_rule=gated_delta_net.gated_delta_rule,
        gated_norm=gated_delta_net.gated_norm,
        attention=attention.attention,
        select_blocks=indexer.select_blocks,
        route=experts.route,
        mixture=experts.mixture,
        shared_expert=experts.shared_expert,
        ngram_rows=ngram_embedding.ngram_rows,
        ngram_gated_value=ngram_embedding.ngram_gated_value,
    )
