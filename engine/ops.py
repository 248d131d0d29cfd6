"""The operators that a layer needs, as one frozen set a device.

Layers receive `Ops` and never ask what device they run on. The signatures and docstrings are those
of `engine/reference`; another device gives functions that behave the same, bit for bit where
docs/decisions.md names an order. Tensors live on the device; `Matrix`, `KvCache` and `Table` are
opaque to layers: each device packs its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Ops:
    """One implementation of each operator. `device` is torch's name of where tensors live."""

    device: str
    matrix: Callable[..., Any]
    table: Callable[..., Any]
    kv_cache: Callable[..., Any]
    rotary_table: Callable[..., Any]
    linear: Callable[..., Any]
    rms_norm: Callable[..., Any]
    hyper_read: Callable[..., Any]
    hyper_write: Callable[..., Any]
    causal_convolution: Callable[..., Any]
    gated_delta_rule: Callable[..., Any]
    gated_norm: Callable[..., Any]
    attention: Callable[..., Any]
    select_blocks: Callable[..., Any]
    route: Callable[..., Any]
    mixture: Callable[..., Any]
    shared_expert: Callable[..., Any]
    ngram_rows: Callable[..., Any]
    ngram_gated_value: Callable[..., Any]


def ops_for(device: str) -> Ops:
    """The operators of a device: `cpu` or `cuda:N`. Raises ConfigError for another one."""
    if re.fullmatch(r"cuda:\d+", device):
        from engine.kernels.ops import kernel_ops

        return kernel_ops(device)
    if device != "cpu":
        raise ConfigError(
            f"device {device!r} cannot be used, this version runs on: cpu, cuda:N",
            hint="Leave --device out.",
        )
    from engine.reference import (
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
    )

    return Ops(
        device="cpu",
        matrix=matrix.matrix,
        table=ngram_embedding.Table,
        kv_cache=kv_cache.KvCache.empty,
        rotary_table=rotary.rotary_table,
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
