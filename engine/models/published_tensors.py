"""The tensors of the published models: names, classes of their types, shapes.

From llama.cpp's conversion of `qwen4exp` and `qwen35moe`, checked against published files (1,224
tensors of Qwen3.8-Flash-Next, 32 of its draft layer).
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.models.geometry import CONV_KERNEL, STREAMS, Geometry

Shapes = Iterator[tuple[str, str, tuple[int, ...]]]
"""Name (within its block), class or type, and shape in numpy order (slowest first)."""


def global_tensors(g: Geometry) -> Shapes:
    """The tensors outside the blocks."""
    yield "token_embd.weight", "dense", (g.vocabulary, g.width)
    yield "output.weight", "dense", (g.vocabulary, g.width)
    if not g.flash:
        yield "output_norm.weight", "F32", (g.width,)
        return
    yield "output_hc_norm.weight", "F32", (g.wide,)
    yield "output_hc_down.weight", "wide", (g.low_rank, g.wide)
    yield "output_hc_up.weight", "wide", (g.wide, g.low_rank)
    yield "per_layer_token_embd.weight", "table", (g.table_rows, g.width // len(g.primes))


def block_tensors(g: Geometry, block: int) -> Shapes:
    """The tensors of a block; blocks from `layers` on are draft layers."""
    draft = block >= g.layers
    yield from _experts(g)
    yield from _attention(g) if draft or (block + 1) % g.interval == 0 else _delta_net(g)
    yield from _hyper_connections(g) if g.flash else _norms(g)
    if draft:
        yield from _draft_head(g)
    if g.flash and block == 1:
        yield from _ngrams(g)


def _experts(g: Geometry) -> Shapes:
    count, wide, width = g.experts, g.expert_width, g.width
    yield "ffn_gate_inp.weight", "F32", (count, width)
    yield "ffn_gate_exps.weight", "gate_up", (count, wide, width)
    yield "ffn_up_exps.weight", "gate_up", (count, wide, width)
    yield "ffn_down_exps.weight", "down", (count, width, wide)
    yield "ffn_gate_inp_shexp.weight", "F32", (width,)
    yield "ffn_gate_shexp.weight", "dense", (wide, width)
    yield "ffn_up_shexp.weight", "dense", (wide, width)
    yield "ffn_down_shexp.weight", "dense", (width, wide)


def _attention(g: Geometry) -> Shapes:
    queries, keys, width = g.heads * g.head_length, g.kv_heads * g.head_length, g.width
    yield "attn_q.weight", "dense", (2 * queries, width)
    yield "attn_k.weight", "dense", (keys, width)
    yield "attn_v.weight", "dense", (keys, width)
    yield "attn_output.weight", "dense", (width, queries)
    yield "attn_q_norm.weight", "F32", (g.head_length,)
    yield "attn_k_norm.weight", "F32", (g.head_length,)
    if g.flash:
        yield "indexer.q_proj.weight", "small", (g.index_heads * g.delta_length, width)
        yield "indexer.k_proj.weight", "small", (g.delta_length, width)
        yield "indexer.q_norm.weight", "F32", (g.delta_length,)
        yield "indexer.k_norm.weight", "F32", (g.delta_length,)


def _delta_net(g: Geometry) -> Shapes:
    yield "attn_qkv.weight", "dense", (g.channels, g.width)
    yield "attn_gate.weight", "dense", (g.inner, g.width)
    yield "ssm_alpha.weight", "small", (g.value_heads, g.width)
    yield "ssm_beta.weight", "small", (g.value_heads, g.width)
    yield "ssm_a", "F32", (g.value_heads,)
    yield "ssm_dt.bias", "F32", (g.value_heads,)
    yield "ssm_conv1d.weight", "F32", (g.channels, CONV_KERNEL)
    yield "ssm_norm.weight", "F32", (g.delta_length,)
    yield "ssm_out.weight", "dense", (g.width, g.inner)


def _hyper_connections(g: Geometry) -> Shapes:
    for part in ("hc_attn", "hc_ffn"):
        yield f"{part}_norm.weight", "F32", (g.wide,)
        yield f"{part}_down.weight", "wide", (g.low_rank, g.wide)
        yield f"{part}_up.weight", "wide", (g.wide, g.low_rank)
        yield f"{part}_inject.weight", "small", (STREAMS, g.wide)


def _norms(g: Geometry) -> Shapes:
    yield "attn_norm.weight", "F32", (g.width,)
    yield "post_attention_norm.weight", "F32", (g.width,)


def _ngrams(g: Geometry) -> Shapes:
    yield "ple_key.weight", "wide", (g.wide, g.width)
    yield "ple_value.weight", "wide", (g.width, g.width)
    for part in ("key", "query", "conv"):
        yield f"ple_norm_{part}.weight", "F32", (g.wide,)
    yield "ple_conv1d.weight", "F16", (g.wide, CONV_KERNEL)


def _draft_head(g: Geometry) -> Shapes:
    yield "nextn.eh_proj.weight", "dense", (g.width, 2 * g.width)
    yield "nextn.enorm.weight", "F32", (g.width,)
    if not g.flash:
        yield "nextn.hnorm.weight", "F32", (g.width,)
        yield "nextn.shared_head_norm.weight", "F32", (g.width,)
        return
    yield "nextn.hnorm.weight", "F32", (g.wide,)
    yield "nextn.hc_head_norm.weight", "F32", (g.wide,)
    yield "nextn.hc_head_down.weight", "wide", (g.low_rank, g.wide)
    yield "nextn.hc_head_up.weight", "wide", (g.wide, g.low_rank)
