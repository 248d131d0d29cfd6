"""The logits of a window, wherever they lie, and the little of them that choosing tokens needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

CANDIDATES, WIDE = 64, 256
"""How many of a row's largest logits a device has ready: where `top_k` says how many can be drawn,
or where `top_p` leaves it open in a window."""

Floats = npt.NDArray[np.float32]
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The largest logits of a row, of equal ones those with the lowest ids.

    ids [K], ascending; logits float32 [K]. `all`: the row has no other tokens. `total`: the sum of
    all weights of the row at its request's temperature, where it is known (`engine/sampler.py`).
    """

    ids: Whole
    logits: Floats
    all: bool = False
    total: int | None = None


class Logits(Protocol):
    """Rows in the order of a window, until its commit."""

    count: int
    """Rows."""

    def best(self, row: int) -> int:
        """The largest logit's id, the lowest among equals; -1 when a logit is not finite."""

    def drawn(self, row: int) -> int | None:
        """The token that `engine.sampler.choose` gives; None where the device did not draw it."""

    def candidates(self, row: int) -> Candidates | None:
        """The largest logits of a row, all of them finite; None: take the whole row."""

    def whole(self, row: int) -> Floats:
        """All logits of a row, float32 [vocab]; not to be written to."""


class HostLogits:
    """Logits in host memory: float32 [count, vocab]."""

    def __init__(self, rows: Floats) -> None:
        self.count = len(rows)
        self._rows = rows

    def best(self, row: int) -> int:
        """See `Logits.best`."""
        logits = self._rows[row]
        return int(logits.argmax()) if np.isfinite(logits).all() else -1

    def drawn(self, row: int) -> int | None:
        """See `Logits.drawn`."""

    def candidates(self, row: int) -> Candidates | None:
        """See `Logits.candidates`."""

    def whole(self, row: int) -> Floats:
        """See `Logits.whole`."""
        return self._rows[row]  # type: ignore[no-any-return]


def whole_rows(logits: Logits) -> Floats:
    """A copy of all rows, float32 [count, vocab] ([0, 0] without rows)."""
    rows = [logits.whole(row) for row in range(logits.count)]
    return np.stack(rows) if rows else np.empty((0, 0), np.float32)
