"""The state of one slot, in as many tensors as a model has layers, in one launch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from engine.kernels.dependent import launch_options, wait
from engine.kernels.host_buffer import BufferPool, Lent

WORDS = 4096
"""Words of four bytes that a program copies."""
READY = 16
"""Copies in host memory whose room is made before the first request: locking 0.1 GB takes 50 ms."""


@triton.jit(do_not_specialize=["slot"])
def move(PLACES, FLAT, slot, RESTORE: tl.constexpr, B: tl.constexpr, PDL: tl.constexpr):
    """Between the state of a slot and a flat copy of it. Grid (parts of the longest tensor,
    tensors). PLACES: int64 [tensors, 3]: address of slot 0, words of a slot, first word in FLAT."""
    place = PLACES + tl.program_id(1) * 3
    words = tl.load(place + 1)
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    state = tl.load(place).to(tl.pointer_type(tl.int32)) + slot.to(tl.int64) * words + at
    flat = FLAT + tl.load(place + 2) + at
    wait(PDL)
    if RESTORE:
        tl.store(state, tl.load(flat, mask=at < words, other=0), mask=at < words)
    else:
        tl.store(flat, tl.load(state, mask=at < words, other=0), mask=at < words)


@triton.jit(do_not_specialize=["slot"])
def clear(PLACES, slot, B: tl.constexpr, PDL: tl.constexpr):
    """Zeroes the state of a slot. Grid and PLACES as for `move`."""
    place = PLACES + tl.program_id(1) * 3
    words = tl.load(place + 1)
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    state = tl.load(place).to(tl.pointer_type(tl.int32)) + slot.to(tl.int64) * words + at
    wait(PDL)
    tl.store(state, tl.zeros([B], tl.int32), mask=at < words)


class SlotState:
    """The tensors [S, ...] of a device that hold what slots remember; each slot's part is one run
    of whole words in memory."""

    def __init__(self, tensors: Sequence[torch.Tensor], near: int = 0, copies: int = 0) -> None:
        """Of `copies` that there may be, `near` lie on the device, the others in host memory."""
        self._tensors = tuple(tensors)  # their memory is what PLACES has the addresses of
        words = [tensor.stride(0) * tensor.element_size() // 4 for tensor in tensors]
        starts = [sum(words[:index]) for index in range(len(words))]
        lines = zip((tensor.data_ptr() for tensor in tensors), words, starts, strict=True)
        self._words = sum(words)
        self._places = torch.tensor(list(lines), dtype=torch.int64).to(tensors[0].device)
        size, device = 4 * self._words, tensors[0].device
        self._near = BufferPool(size, device, _on_device, near)
        self._far = BufferPool(size, device)
        self._ready = near, min(READY, copies - near)
        self._grid = (triton.cdiv(max(words), WORDS), len(tensors))

    @property
    def size_bytes(self) -> int:
        """Of one slot."""
        return 4 * self._words

    def launches(self) -> None:
        """All that there are."""
        self.clear(0)
        flat = torch.empty(self._words, dtype=torch.int32, device=self._places.device)
        for restore in (False, True):
            self._move(0, flat, restore=restore)

    def prepare(self) -> None:
        """Makes room for copies: all those on the device, and the first in host memory."""
        near, far = self._ready
        self._near.prepare(near)
        self._far.prepare(far)

    def clear(self, slot: int) -> None:
        """Zeroes."""
        options = launch_options(self._places)
        clear[self._grid](self._places, slot, B=WORDS, num_warps=4, **options)

    def save(self, slot: int) -> Lent:
        """A copy on the device where there is room, else in host memory, which is there once the
        device has come so far: uint8."""
        if not self._near.empty:
            saved = self._near.lend()
            self._move(slot, saved.buffer.view(torch.int32), restore=False)
            return saved
        flat = torch.empty(self._words, dtype=torch.int32, device=self._places.device)
        self._move(slot, flat, restore=False)
        saved = self._far.lend()
        saved.buffer.view(torch.int32).copy_(flat, non_blocking=True)
        return saved

    def set_aside(self, saved: Lent) -> Lent:
        """The same copy in host memory: room on the device is for those that slots use."""
        if saved.pool is self._far:
            return saved
        aside = self._far.lend()
        aside.buffer.copy_(saved.buffer, non_blocking=True)
        return aside

    def prepare_aside(self, size_bytes: int) -> None:
        """Makes room for more copies of so many bytes in host memory."""
        self._far.prepare(self._ready[1] + size_bytes // self.size_bytes)

    def restore(self, slot: int, saved: Lent) -> None:
        """The other way."""
        flat = saved.buffer.view(torch.int32).to(self._places.device, non_blocking=True)
        self._move(slot, flat, restore=True)

    def _move(self, slot: int, flat: torch.Tensor, *, restore: bool) -> None:
        options = launch_options(flat)
        move[self._grid](self._places, flat, slot, RESTORE=restore, B=WORDS, num_warps=4, **options)


def _on_device(size_bytes: int, device: torch.device) -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8, device=device)
