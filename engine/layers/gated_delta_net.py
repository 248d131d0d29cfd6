"""The GatedDeltaNet mixer: projections, convolution, delta rule, gated norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


class GatedDeltaNet:
    """The mixer of one layer."""

    def __init__(
        self, w: weights.GatedDeltaNet, state: GatedDeltaNetState, config: GatedDeltaNetConfig
    ) -> None:
        self._w = w
        self.state = state
        self._config = config
        self._inputs: Any = None

    def forward(
        self, x: Any, residual: torch.Tensor, shares: torch.Tensor | None, context: Context
    ) -> None:
        """Adds the mixer's output for the input x to the residual, in place.

        Certain rows change the state, draft rows wait for `commit`.
        """
        ops, w = context.ops, self._w
        matrices = (w.attn_qkv, w.attn_gate, w.ssm_alpha, w.ssm_beta)
        out, inputs = ops.delta_mixer(
            *ops.project(x, matrices),
            w.ssm_conv1d,
            self.state.ring,
            w.ssm_a,
            w.ssm_dt,
            self.state.recurrent,
            w.ssm_norm,
            self._config,
            context.config.rms_eps,
            context.rows,
        )
        # Those of a long prompt are gigabytes in all layers together.
        self._inputs = inputs if context.rows.drafts else None
        ops.project_into(residual, shares, out, w.ssm_out)

    def commit(self, kept: Rows, ops: Ops) -> None:
        """Applies kept draft rows. `kept` has spans over the rows of the last window."""
        if self._inputs is not None:
            w = self._w
            ops.delta_commit(
                self._inputs, w.ssm_a, w.ssm_dt, self.state.recurrent, self._config, kept
            )
