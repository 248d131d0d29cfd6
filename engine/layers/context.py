"""What every part of a model is given beside its weights and its input."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.models.config import ModelConfig
from engine.ops import Ops
from engine.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """One pass over a window. `table` is the rotary table of all positions."""

    ops: Ops
    config: ModelConfig
    rows: Rows
    table: torch.Tensor
