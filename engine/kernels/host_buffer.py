"""Host memory that kernels read and write by its address."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import torch

from engine.errors import StrataError

_MAPPED = 2  # cudaHostRegisterMapped


def host_buffer(size_bytes: int, device: torch.device) -> torch.Tensor:
    """Zeros in host memory, uint8 [size_bytes], with one address for host and device.

    It is registered with the driver rather than allocated by it: torch's pinned memory comes in
    powers of two. On a CPU, where kernels are interpreted, any memory will do.
    """
    if device.type == "cpu" or not size_bytes:
        return torch.zeros(size_bytes, dtype=torch.uint8)
    lent = mmap.mmap(-1, size_bytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        lent.madvise(mmap.MADV_HUGEPAGE)
    buffer = torch.frombuffer(lent, dtype=torch.uint8)
    buffer.zero_()  # pages that exist are registered faster
    with torch.cuda.device(device):
        runtime = torch.cuda.cudart()
        error = int(runtime.cudaHostRegister(buffer.data_ptr(), size_bytes, _MAPPED))
    if error:
        raise StrataError(
            f"the driver cannot lock {size_bytes / 2**30:.1f} GiB of memory (error {error})",
            hint="Allow it more locked memory (ulimit -l).",
        )
    weakref.finalize(buffer, runtime.cudaHostUnregister, buffer.data_ptr())
    return buffer


@dataclass(slots=True, weakref_slot=True, eq=False)
class Lent:
    """A buffer of a pool, uint8 [size_bytes], which has it back once nobody holds this any more."""

    buffer: torch.Tensor
    pool: BufferPool


class BufferPool:
    """Buffers of one size, as many as were ever needed together: locking memory takes time. They
    lie in host memory, or where `make` puts them; there are `most` at most.

    Whoever gets one writes to it in the order of the device's stream, behind what was last done
    with it there.
    """

    def __init__(
        self,
        size_bytes: int,
        device: torch.device,
        make: Callable[[int, torch.device], torch.Tensor] = host_buffer,
        most: float = inf,
    ) -> None:
        self._size_bytes = size_bytes
        self._device = device
        self._make = make
        self._left = most
        self._free: list[torch.Tensor] = []

    @property
    def idle_bytes(self) -> int:
        """Of all that are not lent."""
        return len(self._free) * self._size_bytes

    @property
    def empty(self) -> bool:
        """Whether all that there may be are lent."""
        return not self._free and not self._left

    def prepare(self, count: int) -> None:
        """Makes as many as are missing of `count` unlent ones."""
        while len(self._free) < count:
            self._free.append(self._new())

    def lend(self) -> Lent:
        """A buffer with anything in it. The pool is not `empty`."""
        buffer = self._free.pop() if self._free else self._new()
        lent = Lent(buffer, self)
        weakref.finalize(lent, self._free.append, buffer).atexit = False
        return lent

    def _new(self) -> torch.Tensor:
        assert self._left, "more buffers than the pool may have"
        self._left -= 1
        return self._make(self._size_bytes, self._device)
