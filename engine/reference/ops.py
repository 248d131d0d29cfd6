"""The operators of the reference as one set."""

from __future__ import annotations

from engine.ops import Ops
from engine.reference import (
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
)


def reference_ops() -> Ops:
    """All operators on the CPU."""
    return Ops(
        device="cpu",
        matrix=matrix.matrix,
        table=ngram_embedding.Table,
        kv_cache=kv_cache.KvCache.empty,
        rotary_table=rotary.rotary_table,
        linear=linear.linear,
        project=linear.project,
        project_into=hyper_connections.project_into,
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
