"""A graph's input: whose rows it computes and which tokens they hold, in memory that stays."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.rows import Rows

SpanRows = tuple[int, int, int, int]
"""Slot, start position, rows, certain rows."""


class Words:
    """Tokens and `Rows` of R = `count` rows, written on the host and copied to the device at once.

    int32: tokens [R] and the wanted rows [W] as int64, spans [S, 5], slots [R], positions [R].
    Rows that a window lacks belong to the slot `spare`, which no conversation has.

    For decoding, S = R and W = 0. Rows that are lacking are all the same row, so that they choose
    the same experts: token 0 at position 0, a draft that nobody keeps, so that no recurrent state
    changes. For prompts (`wanted` is W), there is a span for every slot and one for the rows that
    are lacking, a prompt of zeros: kernels have a program for every span, used or not.
    """

    def __init__(self, count: int, spare: int, device: str, wanted: int = 0) -> None:
        self._spare = spare
        spans = spare + 1 if wanted else count
        sizes = [2 * count, 2 * wanted, 5 * spans, count, count]
        self._host = torch.zeros(sum(sizes), dtype=torch.int32, pin_memory=device != "cpu")
        self._there = torch.zeros_like(self._host, device=device)
        tokens, chosen, lines, slots, positions = torch.split(self._host, sizes)
        # Little-endian: the upper halves stay zero.
        self._tokens = tokens.numpy()[::2]
        self._wanted = chosen.numpy()[::2]
        self._spans, self._slots, self._positions = lines.numpy(), slots.numpy(), positions.numpy()
        tokens, chosen, lines, slots, positions = torch.split(self._there, sizes)
        self.ids = tokens.view(torch.int64)
        self.wanted = chosen.view(torch.int64) if wanted else None
        """Rows whose logits are asked for, int64 [W]; behind the last one, 0."""
        self.rows = Rows(lines.view(spans, 5), slots, positions)

    @property
    def count(self) -> int:
        """R."""
        return self.rows.count

    def write(
        self, tokens: Sequence[int], spans: Sequence[SpanRows], wanted: Sequence[int] = ()
    ) -> None:
        """The rows of the next `send`, at most R; tokens that are not said are 0. `wanted`: at most
        W, for prompts."""
        lines: list[int] = []
        slots: list[int] = []
        positions: list[int] = []
        for slot, start, rows, certain in spans:
            lines += (slot, len(slots), rows, start, certain)
            slots += [slot] * rows
            positions += range(start, start + rows)
        used, lacking = len(slots), self.count - len(slots)
        slots += [self._spare] * lacking
        if self.wanted is None:
            for row in range(used, self.count):
                lines += (self._spare, row, 1, 0, 0)
            positions += [0] * lacking
        else:
            lines += (self._spare, used, lacking, 0, lacking)
            positions += range(lacking)
            self._wanted[: len(wanted)] = wanted
            self._wanted[len(wanted) :] = 0
        self._tokens[: len(tokens)] = tokens
        self._tokens[len(tokens) :] = 0
        self._spans[: len(lines)] = lines
        self._spans[len(lines) :] = 0
        self._slots[:] = slots
        self._positions[:] = positions

    def send(self) -> None:
        """Copies what was written; part of a graph."""
        self._there.copy_(self._host, non_blocking=True)
