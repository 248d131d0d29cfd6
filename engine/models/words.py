"""A graph's input: whose rows it computes and which tokens they hold, in memory that stays."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.rows import Rows

SpanRows = tuple[int, int, int, int]
"""Slot, start position, rows, certain rows."""


class Words:
    """Tokens and `Rows` of `count` rows, written on the host and copied to the device at once.

    int32 [9 R]: tokens as int64, spans [R, 5], slots, positions. Rows that a window lacks are all
    the same row, so that they choose the same experts: token 0 at position 0 of the slot `spare`,
    which no conversation has, a draft that nobody keeps, so that no recurrent state changes.
    """

    def __init__(self, count: int, spare: int, device: str) -> None:
        self._spare = spare
        self._host = torch.zeros(9 * count, dtype=torch.int32, pin_memory=device != "cpu")
        self._there = torch.zeros_like(self._host, device=device)
        words = self._host.numpy()
        # Little-endian: the upper halves stay zero.
        self._tokens = words[: 2 * count : 2]
        self._spans = words[2 * count : 7 * count]
        self._slots = words[7 * count : 8 * count]
        self._positions = words[8 * count :]
        self.ids = self._there[: 2 * count].view(torch.int64)
        self.rows = Rows(
            self._there[2 * count : 7 * count].view(count, 5),
            self._there[7 * count : 8 * count],
            self._there[8 * count :],
        )

    @property
    def count(self) -> int:
        """R."""
        return self.rows.count

    def write(self, tokens: Sequence[int], spans: Sequence[SpanRows]) -> None:
        """The rows of the next `send`, at most R; tokens that are not said are 0."""
        lines: list[int] = []
        slots: list[int] = []
        positions: list[int] = []
        for slot, start, rows, certain in spans:
            lines += (slot, len(slots), rows, start, certain)
            slots += [slot] * rows
            positions += range(start, start + rows)
        for row in range(len(slots), self.count):
            lines += (self._spare, row, 1, 0, 0)
            slots.append(self._spare)
            positions.append(0)
        self._tokens[: len(tokens)] = tokens
        self._tokens[len(tokens) :] = 0
        self._spans[: len(lines)] = lines
        self._spans[len(lines) :] = 0
        self._slots[:] = slots
        self._positions[:] = positions

    def send(self) -> None:
        """Copies what was written; part of a graph."""
        self._there.copy_(self._host, non_blocking=True)
