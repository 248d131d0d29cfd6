"""The GatedDeltaNet mixer: projections, convolution, delta rule, gated norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.layers.context import Context
from engine.models import weights
from engine.models.config import GatedDeltaNetConfig
from engine.ops import Ops
from engine.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class GatedDeltaNetState:
    """One layer's state of all slots.

    recurrent: float32 [S, H, K, V], after each slot's committed rows. ring: float32
    [S, L, channels], inputs of the convolution by position modulo L.
    """

    recurrent: torch.Tensor
    ring: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class DeltaInputs:
    """What the delta rule read for a window's rows: enough to apply draft rows once kept."""

    qkv: torch.Tensor
    alpha: torch.Tensor
    beta: torch.Tensor


class GatedDeltaNet:
    """The mixer of one layer."""

    def __init__(
        self, w: weights.GatedDeltaNet, state: GatedDeltaNetState, config: GatedDeltaNetConfig
    ) -> None:
        self._w = w
        self.state = state
        self._config = config
        self._inputs: DeltaInputs | None = None

    def forward(self, x: torch.Tensor, context: Context) -> torch.Tensor:
        """float32 [R, D] -> [R, D]. Certain rows change the state, draft rows wait for `commit`."""
        ops, w, rows = context.ops, self._w, context.rows
        qkv = ops.causal_convolution(
            ops.linear(x, w.attn_qkv), self.state.ring, w.ssm_conv1d, 1, rows
        )
        inputs = DeltaInputs(qkv, ops.linear(x, w.ssm_alpha), ops.linear(x, w.ssm_beta))
        out = self._recur(inputs, ops, rows)
        self._inputs = inputs
        gate = ops.linear(x, w.attn_gate)
        normed = ops.gated_norm(out, gate, w.ssm_norm, self._config, context.config.rms_eps)
        return ops.linear(normed, w.ssm_out)  # type: ignore[no-any-return]

    def commit(self, kept: Rows, ops: Ops) -> None:
        """Applies kept draft rows. `kept` has spans over the rows of the last window."""
        if self._inputs is not None:
            self._recur(self._inputs, ops, kept)

    def _recur(self, inputs: DeltaInputs, ops: Ops, rows: Rows) -> torch.Tensor:
        return ops.gated_delta_rule(  # type: ignore[no-any-return]
            inputs.qkv,
            inputs.alpha,
            inputs.beta,
            self._w.ssm_a,
            self._w.ssm_dt,
            self.state.recurrent,
            self._config,
            rows,
        )
