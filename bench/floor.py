"""The bytes that a window moves on a card, and how long the card takes to copy as many.

A result stands beside that floor: no arrangement of kernels reads its weights faster.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.memory import token_bytes
from engine.model_info import ModelInfo
from engine.models.config import ModelConfig

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Traffic:
    """What decides how many bytes a window moves, for one model and format of keys and values."""

    info: ModelInfo
    config: ModelConfig
    kv: str

    def window_bytes(self, slots: int, rows: int, depth: int) -> int:
        """Bytes of a window of `rows` rows of `slots` conversations with `depth` tokens each.

        Weights are read once, of each layer's experts as many as so many rows choose on average
        where all are chosen alike. Recurrent state is read and written. Of keys and values a row
        reads those that it selects; the rows of one conversation read about the same ones, once.
        """
        weights = self.info.on_card
        experts = round(weights.expert_bytes * self._chosen(rows))
        state = 2 * slots * self.info.state_bytes
        return weights.dense_bytes + experts + state + slots * self._cells_bytes(depth)

    def _chosen(self, rows: int) -> float:
        """The share of a layer's experts that `rows` rows choose."""
        experts = self.config.experts
        return 1 - (1 - experts.used / experts.count) ** rows if experts.count else 0.0

    def _cells_bytes(self, depth: int) -> int:
        index = self.info.index_bytes_per_token
        stored = token_bytes(self.info, self.kv) - index
        selected = depth
        if self.config.indexer is not None:
            selected = min(depth, self.config.indexer.top_k)
        return selected * stored + depth * index


def copy_bytes_per_s(device: str) -> float:
    """What the card moves while it copies in its own memory, reads and writes counted: the best of
    a few copies of at most 1 GiB."""
    import torch

    from bench.card_timing import elapsed_ms

    free, _ = torch.cuda.mem_get_info(device)
    count = max(1 << 20, min(1 << 30, free // 4))
    source = torch.zeros(count, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    best = min(elapsed_ms(lambda: target.copy_(source)) for _ in range(_TRIES))
    return 2 * count / best * 1e3
