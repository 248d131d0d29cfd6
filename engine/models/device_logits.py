"""The logits of a window that stay on the device: only what choosing tokens needs comes over."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engine.kernels.sampling import Chooser
from engine.logits import CANDIDATES, WIDE, Candidates, Floats
from engine.models.asks import Ask


class DeviceLogits:
    """Logits float32 [R, vocab] on a device; `rows` of them are a window's, in this order.

    `chooser.find_best` was launched for them; the launches for `asks` are made here. Nothing may be
    read before the stream is done with all of that.
    """

    def __init__(
        self, logits: torch.Tensor, chooser: Chooser, rows: Sequence[int], asks: Sequence[Ask]
    ) -> None:
        self.count = len(rows)
        self._logits = logits
        self._chooser = chooser
        self._rows = rows
        self._asked = {ask.row: (number, ask) for number, ask in enumerate(asks)}
        self._best: list[int] = []
        self._most = WIDE if any(ask.wide for ask in asks) else CANDIDATES
        if asks:
            chooser.ask(logits, [ask.words for ask in asks], self._most)

    def best(self, row: int) -> int:
        """See `Logits.best`."""
        if not self._best:
            self._best = self._chooser.found.tolist()
        return self._best[self._rows[row]]

    def drawn(self, row: int) -> int | None:
        """See `Logits.drawn`."""
        number, ask = self._asked.get(self._rows[row], (0, None))
        if ask is None or not ask.weighed or ask.sampling.top_p < 1:
            return None
        return int(self._chooser.drawn[number, 0])

    def candidates(self, row: int) -> Candidates | None:
        """See `Logits.candidates`."""
        number, ask = self._asked.get(self._rows[row], (0, None))
        if ask is None:
            return None
        chooser, columns = self._chooser, self._logits.shape[1]
        count = min(self._most, columns)
        return Candidates(
            chooser.ids[number, :count].numpy().astype(np.int64),
            chooser.values[number, :count].numpy(),
            count == columns,
            int(chooser.drawn[number, 1]) if ask.weighed else None,
        )

    def whole(self, row: int) -> Floats:
        """See `Logits.whole`."""
        return self._logits[self._rows[row]].cpu().numpy()
