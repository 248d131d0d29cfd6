"""The rows of a window as the operators read them."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Which conversation and position every row of a window belongs to.

    spans: int32 [spans, 5], one line for the consecutive rows of a slot: slot, first row, rows,
    position of the first row, certain rows (the rest are drafts). slots, positions: int32 [R].
    reach: positions that the rows have at most, where the host knows it; only room depends on it.
    drafts: whether there may be drafts among them, which a later `commit` keeps or not.
    """

    spans: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    reach: int | None = None
    drafts: bool = True

    @property
    def count(self) -> int:
        """Rows in the window."""
        return self.slots.shape[0]


def rows_of(spans: list[tuple[int, int, int, int]], device: str = "cpu") -> Rows:
    """Rows on `device` from (slot, start position, rows, certain rows) of each span, in order."""
    lines: list[tuple[int, ...]] = []
    slots: list[int] = []
    positions: list[int] = []
    for slot, start, count, certain in spans:
        lines.append((slot, len(slots), count, start, certain))
        slots.extend([slot] * count)
        positions.extend(range(start, start + count))
    return Rows(
        torch.tensor(lines, dtype=torch.int32, device=device).view(-1, 5),
        torch.tensor(slots, dtype=torch.int32, device=device),
        torch.tensor(positions, dtype=torch.int32, device=device),
        max(positions, default=-1) + 1,
        any(certain < count for _, _, count, certain in spans),
    )
