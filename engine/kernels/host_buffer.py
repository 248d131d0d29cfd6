"""Host memory that kernels read and write by its address."""

from __future__ import annotations

import mmap
import weakref

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
            hint="Allow it more locked memory (ulimit -l), or keep more experts on the card.",
        )
    weakref.finalize(buffer, runtime.cudaHostUnregister, buffer.data_ptr())
    return buffer
