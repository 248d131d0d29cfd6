"""Numbers that programs of a launch make for other ones of the same launch, which wait for them.

Where a number is not there yet stands NOT_YET, bits that no operation gives (a NaN that is not the
one of an operation). Whoever has taken a number puts NOT_YET back, so a launch leaves such memory
as it found it, and neither counters nor fences are needed. Those who wait are the last programs of
their launch: all others are on the chip before them, and wait for nobody.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl

NOT_YET = tl.constexpr(-1)


@lru_cache(maxsize=256)
def room(use: str, count: int, kind: torch.dtype, device: torch.device) -> torch.Tensor:
    """`count` times NOT_YET for a `use`, of 32-bit numbers; launches on a device run one after the
    other."""
    return torch.full((count,), NOT_YET.value, dtype=torch.int32, device=device).view(kind)


@triton.constexpr_function
def _look_text(offset):
    return (
        "{ .reg .pred p; setp.ne.s32 p, $2, 0; mov.b32 $0, 0;"
        f" @p ld.relaxed.gpu.global.b32 $0, [$1 + {4 * offset}]; }}"
    )


@triton.jit
def look(p, there, OFFSET: tl.constexpr, ASM: tl.constexpr):
    """The words at pointers p + OFFSET to int32 as they are now, 0 where not `there`."""
    if ASM:
        found = tl.inline_asm_elementwise(
            _look_text(OFFSET), "=&r,l,r", [p.to(tl.int64), there.to(tl.int32)], dtype=tl.int32,
            is_pure=False, pack=1,
        )  # fmt: skip
    else:
        found = tl.load(p + OFFSET, mask=there, other=0, volatile=True)
    return found
