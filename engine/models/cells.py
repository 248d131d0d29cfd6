"""What slots hold by position, K/V first of all: copies of it in host memory and in other slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from engine.kernels.host_buffer import BufferPool, Lent

LARGEST_BLOCK = 16 << 20
"""Bytes of a piece of host memory: memory is locked piece by piece, and pieces are used again."""
SMALLEST_BLOCK = 64 << 10
BLOCKS = 16
"""Pieces of the longest conversation, unless they would be larger or smaller than that."""


class SlotCells:
    """Tensors [S, ...] that hold one entry for so many tokens each; a slot's entries lie together,
    in order of position.

    A copy is a list of pieces. Copies are begun in the order of the device's stream, behind what
    wrote the cells and before what writes them next.
    """

    def __init__(
        self, tensors: Sequence[tuple[torch.Tensor, int]], context: int, device: str
    ) -> None:
        self._tensors = tuple(tensors)
        most = max(SMALLEST_BLOCK, self._content_bytes(context) // BLOCKS)
        self._block_bytes = min(LARGEST_BLOCK, most)
        self._pool = BufferPool(self._block_bytes, torch.device(device))

    @property
    def idle_bytes(self) -> int:
        """Host memory of copies that are gone."""
        return self._pool.idle_bytes

    def prepare(self, size_bytes: int) -> None:
        """Makes room for copies of so many bytes."""
        self._pool.prepare(size_bytes // self._block_bytes)

    def size_bytes(self, length: int) -> int:
        """Host memory of a copy of so many tokens."""
        return self._blocks(length) * self._block_bytes

    def save(self, slot: int, length: int) -> list[Lent]:
        """A copy of the first `length` tokens."""
        blocks = [self._pool.lend() for _ in range(self._blocks(length))]
        for there, here in self._pieces(slot, length, blocks):
            here.copy_(there, non_blocking=True)
        return blocks

    def load(self, slot: int, length: int, blocks: Sequence[Lent], held: int) -> None:
        """The first `length` tokens of a copy of `held`."""
        for there, here in self._pieces(slot, held, blocks, length):
            there.copy_(here, non_blocking=True)

    def copy(self, source: int, target: int, length: int) -> None:
        """The first `length` tokens of one slot into another."""
        for tensor, tokens in self._tensors:
            tensor[target, : length // tokens].copy_(tensor[source, : length // tokens])

    def _blocks(self, length: int) -> int:
        return -(-self._content_bytes(length) // self._block_bytes)

    def _content_bytes(self, length: int) -> int:
        return sum(length // tokens * tensor[0, 0].nbytes for tensor, tokens in self._tensors)

    def _pieces(
        self, slot: int, held: int, blocks: Sequence[Lent], wanted: int | None = None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Bytes of the slot, and where they lie in a copy of `held` tokens: those of the first
        `wanted` ones (`None`: all)."""
        offset, size = 0, self._block_bytes
        for tensor, tokens in self._tensors:
            entry = tensor[0, 0].nbytes
            entries = held if wanted is None else wanted
            run = tensor[slot, : entries // tokens].view(-1).view(torch.uint8)
            at = 0
            while at < len(run):
                block, inside = divmod(offset + at, size)
                count = min(size - inside, len(run) - at)
                yield run[at : at + count], blocks[block].buffer[inside : inside + count]
                at += count
            offset += held // tokens * entry
