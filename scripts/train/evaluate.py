"""Held-out loss and draft agreement of weights, float or as the file holds them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as fn
from torch import Tensor

from scripts.train.layers import Weights
from scripts.train.model import Model


@dataclass(frozen=True, slots=True)
class Score:
    """Means over held-out tokens."""

    loss: float  # nats a token
    accuracy: float  # part of tokens that are the model's first choice
    first_draft: float  # part of positions where draft and trunk choose the same token

    def bits_per_byte(self, tokens: int, size: int) -> float:
        """The loss in bits for each of `size` bytes of text."""
        return self.loss / math.log(2) * tokens / size


@torch.no_grad()
def score(model: Model, weights: Weights, rows: Tensor, batch: int = 4) -> Score:
    """Scores windows [N, T + 1] with the selection active, as at inference."""
    losses, hits, agreed = [], [], []
    for part in rows.split(batch):
        out = model.forward(weights, part[:, :-1], part[:, 1:])
        assert out.draft_logits is not None
        losses.append(
            fn.cross_entropy(
                out.logits.flatten(0, 1), part[:, 1:].flatten(), reduction="none"
            ).cpu()
        )
        choice = out.logits.argmax(-1)
        hits.append((choice == part[:, 1:]).flatten().cpu())
        # row i of the draft sees token i+1 and guesses token i+2; so does row i+1 of the trunk
        agreed.append((out.draft_logits[:, :-1].argmax(-1) == choice[:, 1:]).flatten().cpu())
    means = [torch.cat(x).float().mean().item() for x in (losses, hits, agreed)]
    return Score(*means)
