"""The operators that a layer needs, as one frozen set a device.

Layers receive `Ops` and never ask what device they run on. The signatures and docstrings are those
of `engine/reference`; another device gives functions that behave the same, bit for bit where
docs/decisions.md names an order. Tensors live on the device; `Matrix`, `KvCache` and `Table` are
opaque to layers: each device packs its own. So is what matrices multiply, X: float32 [R, K] on the
CPU, the same with its quantised groups on a GPU.
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
    project: Callable[..., Any]
    project_into: Callable[..., Any]
    rms_norm: Callable[..., Any]
    normed_input: Callable[..., Any]
    hyper_read: Callable[..., Any]
    convolve_into: Callable[..., Any]
    delta_mixer: Callable[..., Any]
    delta_commit: Callable[..., Any]
    attention: Callable[..., Any]
    sparse_attention: Callable[..., Any]
    mixture_into: Callable[..., Any]
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
    from engine.reference.ops import reference_ops

    return reference_ops()
