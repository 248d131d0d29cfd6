"""The weights of a model, named as in the GGUF: `blk.3.hc_attn_down.weight` is `hc_attn_down`.

A field of type `Vector` is float32 in memory, one of type `Matrix` is what the device packs.
A field with the default `None` may be missing in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

Matrix: TypeAlias = Any
Vector: TypeAlias = torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperConnection:
    """One read (and, with `inject`, write) of the residual streams."""

    norm: Vector
    down: Matrix
    up: Matrix
    inject: Matrix | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet:
    """The linear-attention mixer."""

    attn_qkv: Matrix
    attn_gate: Matrix
    ssm_alpha: Matrix
    ssm_beta: Matrix
    ssm_a: Vector
    ssm_dt: Vector
    ssm_conv1d: Vector
    ssm_norm: Vector
    ssm_out: Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The block selector of sparse attention."""

    q_proj: Matrix
    k_proj: Matrix
    q_norm: Vector
    k_norm: Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """The attention mixer."""

    attn_q: Matrix
    attn_k: Matrix
    attn_v: Matrix
    attn_output: Matrix
    attn_q_norm: Vector
    attn_k_norm: Vector
    indexer: Indexer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Router, routed experts and the shared expert."""

    ffn_gate_inp: Matrix
    ffn_gate_exps: Matrix
    ffn_up_exps: Matrix
    ffn_down_exps: Matrix
    ffn_gate_inp_shexp: Matrix
    ffn_gate_shexp: Matrix
    ffn_up_shexp: Matrix
    ffn_down_shexp: Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramEmbedding:
    """The n-gram (PLE) addition to a block's streams."""

    ple_key: Matrix
    ple_value: Matrix
    ple_norm_key: Vector
    ple_norm_query: Vector
    ple_norm_conv: Vector
    ple_conv1d: Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One layer. With hyper-connections `hc_attn` and `hc_ffn`, else the two norms."""

    mixer: GatedDeltaNet | Attention
    experts: Experts
    ngram: NgramEmbedding | None
    hc_attn: HyperConnection | None
    hc_ffn: HyperConnection | None
    attn_norm: Vector | None
    post_attention_norm: Vector | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftBlock:
    """The draft (MTP) layer. `hc_head` or `shared_head_norm` ends it; head and embedding may be the
    trunk's."""

    block: Block
    eh_proj: Matrix
    enorm: Vector
    hnorm: Vector
    hc_head: HyperConnection | None
    shared_head_norm: Vector | None
    shared_head_head: Matrix
    embed_tokens: Any
    ids: tuple[int, ...] | None = None
    """The token of each row of `shared_head_head`; None: all tokens, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """A whole model. `output_hc` (hyper-connections) or `output_norm` ends the trunk."""

    token_embd: Any
    output: Matrix
    blocks: tuple[Block, ...]
    per_layer_token_embd: Any
    output_hc: HyperConnection | None
    output_norm: Vector | None
    draft: DraftBlock | None
