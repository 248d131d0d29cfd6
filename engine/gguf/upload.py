"""Stored bytes to a device: read by several threads, through pinned memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.gguf.stored import tensor_of

Bytes = npt.NDArray[np.uint8]

# A thread reads a piece at a time; while one buffer is copied to the device, the next is filled.
_PIECE_BYTES, _BUFFER_BYTES, _BUFFERS = 1 << 22, 1 << 26, 3


def upload(stored: Bytes, device: torch.device | str) -> torch.Tensor:
    """A copy of contiguous bytes on a device; on the CPU the same memory. Work that follows on the
    device sees them, the caller need not wait."""
    device = torch.device(device)
    if device.type == "cpu":
        return tensor_of(stored)
    with torch.cuda.device(device):
        return _staging(device).upload(stored)


def copy_by_threads(source: Bytes, target: Bytes) -> None:
    """Copies contiguous bytes of the same size: a file's pages come into memory side by side."""
    source, target = source.reshape(-1), target.reshape(-1)

    def copy(start: int) -> None:
        part = slice(start, start + _PIECE_BYTES)
        np.copyto(target[part], source[part])

    starts = range(0, source.size, _PIECE_BYTES)
    if len(starts) == 1:
        copy(0)
    else:
        list(_threads().map(copy, starts))


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(16, len(os.sched_getaffinity(0))))


@lru_cache(maxsize=8)
def _staging(device: torch.device) -> Staging:
    return Staging(device, _BUFFER_BYTES, _BUFFERS)


class Staging:
    """Pinned buffers on the way to one device."""

    def __init__(self, device: torch.device, size_bytes: int, count: int) -> None:
        pinned = device.type != "cpu"
        self._device = device
        self._size = size_bytes
        self._buffers = [
            torch.empty(size_bytes, dtype=torch.uint8, pin_memory=pinned) for _ in range(count)
        ]
        # Waits until the device has read a buffer.
        self._read: list[Callable[[], Any]] = [lambda: None] * count
        self._next = 0

    def upload(self, stored: Bytes) -> torch.Tensor:
        """As the function `upload`."""
        out = torch.empty(stored.shape, dtype=torch.uint8, device=self._device)
        source, target = stored.reshape(-1), out.view(-1)
        for start in range(0, source.size, self._size):
            part = source[start : start + self._size]
            which, self._next = self._next, (self._next + 1) % len(self._buffers)
            self._read[which]()
            buffer = self._buffers[which][: part.size]
            copy_by_threads(part, buffer.numpy())
            target[start : start + part.size].copy_(buffer, non_blocking=True)
            if self._device.type != "cpu":
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record()
                self._read[which] = event.synchronize
        return out
