"""Random windows of the training tokens, and the held-out windows in order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Batches:
    """Draws rows of `length` tokens from the documents or, with `chat` probability, the chats."""

    def __init__(
        self, arrays: Mapping[str, NDArray[np.uint16]], length: int, device: str, seed: int
    ) -> None:
        self.text, self.chat = (_on(arrays[name], device) for name in ("text", "chat"))
        self.length = length
        self.device = device
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, rows: int, chat: float) -> Tensor:
        """Tokens [rows, length + 2] int64: a window, its next tokens and those after them."""
        chats = round(rows * chat)
        parts = [self._rows(self.text, rows - chats), self._rows(self.chat, chats)]
        return torch.cat(parts).long()

    def _rows(self, source: Tensor, count: int) -> Tensor:
        starts = torch.randint(
            0, source.numel() - self.length - 2, (count, 1), generator=self.generator
        )
        steps = torch.arange(self.length + 2)
        return source[(starts + steps).to(self.device)]


def held_out_rows(ids: NDArray[np.uint16], length: int, device: str) -> Tensor:
    """Whole windows [N, length] of held-out tokens, in order."""
    count = len(ids) // length
    return _on(ids[: count * length], device).view(count, length).long()


def _on(ids: NDArray[np.uint16], device: str) -> Tensor:
    return torch.from_numpy(ids.astype(np.int16)).to(device)
