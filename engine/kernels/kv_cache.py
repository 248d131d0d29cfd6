"""Keys and values of every slot, indexed by position, in one of three formats.

f32 stores the values; fp16 rounds them; int8 stores codes with one fp16 scale for up to 64 values:
scale = fp16(amax / 127), code = value / scale rounded half to even, within -127..127.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import triton
import triton.language as tl

from engine.kernels.dependent import launch_options, wait
from engine.kernels.dots import lanes_at, shuffles
from engine.rows import Rows

KvKind = Literal["f32", "fp16", "int8"]

SCALE_VALUES = 64
GUARD = 64
"""Cells behind the last one that may be read, and mean nothing: kernels read runs of cells."""
ROUND = tl.constexpr(12582912.0)  # 1.5 * 2**23: adding and taking it off rounds half to even
_DTYPES = {"f32": torch.float32, "fp16": torch.float16, "int8": torch.int8}


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Vectors by slot, position and head: `values` [S, context, H, K] in the format's type;
    `scales` fp16 [S, context, H, ceil(K / 64)] belongs to int8 and has no slots otherwise."""

    values: torch.Tensor
    scales: torch.Tensor

    @classmethod
    def empty(
        cls,
        kind: KvKind,
        slots: int,
        context: int,
        heads: int,
        length: int,
        *,
        device: torch.device | str = "cuda",
    ) -> Cells:
        """Room for all slots, zeroed."""
        groups = -(-length // SCALE_VALUES)
        scaled = slots if kind == "int8" else 0

        def room(dtype: torch.dtype, slots: int, width: int) -> torch.Tensor:
            cells = torch.zeros(slots * context + GUARD, heads, width, dtype=dtype, device=device)
            return cells[: slots * context].view(slots, context, heads, width)

        return cls(room(_DTYPES[kind], slots, length), room(torch.float16, scaled, groups))

    @property
    def coded(self) -> bool:
        """Whether the values are codes with scales."""
        return self.values.dtype == torch.int8


@dataclass(frozen=True, slots=True, eq=False)
class KvCache:
    """The keys and values of one attention layer."""

    keys: Cells
    values: Cells

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The memory of all slots, [S, context, H, ...] each."""
        both = (self.keys.values, self.keys.scales, self.values.values, self.values.scales)
        return [tensor for tensor in both if tensor.numel()]

    @classmethod
    def empty(
        cls,
        kind: KvKind,
        slots: int,
        context: int,
        heads: int,
        key_length: int,
        value_length: int,
        *,
        device: torch.device | str = "cuda",
    ) -> KvCache:
        """Room for all slots."""
        return cls(
            Cells.empty(kind, slots, context, heads, key_length, device=device),
            Cells.empty(kind, slots, context, heads, value_length, device=device),
        )


@triton.jit
def quotient(x, by, inverse, FUSED: tl.constexpr):
    """x / by to the nearest float for quotients far from the smallest and largest floats; smaller
    ones come out small. inverse: 1 / by to the nearest.

    FUSED: by two corrections of x * inverse, which is faster than a division that asks for special
    cases, and needs a product and a sum of one rounding (the interpreter has none). The first makes
    the quotient's error less than a unit in the last place, the second then rounds it rightly.
    """
    if FUSED:
        q = x * inverse
        q = tl.fma(tl.fma(-q, by, x), inverse, q)
        q = tl.fma(tl.fma(-q, by, x), inverse, q)
    else:
        q = tl.div_rn(x, by)
    return q


@triton.jit
def store_lanes(
    x, VALUES, SCALES, live, K: tl.constexpr, CODED: tl.constexpr, M: tl.constexpr,
    FUSED: tl.constexpr,
):  # fmt: skip
    """Stores M vectors, a tuple of float32 [M, 32] with zeros from K on. VALUES, SCALES: where
    they start, [M, 1]; live: [M, 1]. FUSED: as in `quotient`."""
    lane = tl.arange(0, 32)[None, :] + tl.arange(0, M)[:, None] * 0
    STEPS: tl.constexpr = (K + 31) // 32
    if CODED:
        for group in tl.static_range((K + 63) // 64):
            # The bits of sizes order like the sizes, and NaN comes after infinity.
            size = x[2 * group].to(tl.int32, bitcast=True) & 0x7FFFFFFF
            if 2 * group + 1 < STEPS:
                more = x[2 * group + 1].to(tl.int32, bitcast=True) & 0x7FFFFFFF
                size = tl.maximum(size, more)
            amax = tl.max(size, axis=1).to(tl.float32, bitcast=True)
            scale = tl.div_rn(amax, tl.full([M], 127.0, tl.float32)).to(tl.float16)[:, None]
            wide = scale.to(tl.float32)
            # Where the scale is not finite it alone carries that on.
            usable = (wide > 0) & (wide < float("inf"))
            one = tl.where(usable, wide, 1.0)
            inverse, _ = tl.broadcast(tl.div_rn(tl.full([M, 1], 1.0, tl.float32), one), x[0])
            by, _ = tl.broadcast(one, x[0])
            for half in tl.static_range(2):
                if 2 * group + half < STEPS:
                    ratio = tl.where(usable, quotient(x[2 * group + half], by, inverse, FUSED), 0.0)
                    ratio = tl.where(ratio > 127.0, 127.0, tl.where(ratio < -127.0, -127.0, ratio))
                    codes = ((ratio + ROUND) - ROUND).to(tl.int8)
                    at = (2 * group + half) * 32 + lane
                    tl.store(VALUES + at, codes, mask=live & (at < K))
            tl.store(SCALES + group, scale, mask=live)
    else:
        for step in tl.static_range(STEPS):
            value = x[step].to(VALUES.dtype.element_ty)
            tl.store(VALUES + step * 32 + lane, value, mask=live & (step * 32 + lane < K))


@triton.jit(
    do_not_specialize=["context", "heads"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS"],
)
def store_kernel(
    X, VALUES, SCALES, SLOTS, POSITIONS, context, heads, K: tl.constexpr, CODED: tl.constexpr,
    M: tl.constexpr, FUSED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (heads / M, rows)."""
    wait(PDL)
    row = tl.program_id(1).to(tl.int64)
    head = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    cell = tl.load(SLOTS + row).to(tl.int64) * context + tl.load(POSITIONS + row)
    vector = cell * heads + head
    x = lanes_at(X + (row * heads + head) * K, head < heads, K, M)
    scales = SCALES + vector * ((K + 63) // 64)
    store_lanes(x, VALUES + vector * K, scales, head < heads, K, CODED, M, FUSED)


def store(cells: Cells, x: torch.Tensor, rows: Rows) -> None:
    """Writes float32 [R, H, K] at every row's slot and position."""
    count, heads, length = x.shape
    if count:
        store_kernel[(-(-heads // 4), count)](
            x.contiguous(), cells.values, cells.scales, rows.slots, rows.positions,
            cells.values.shape[1], heads, K=length, CODED=cells.coded, M=4,
            FUSED=shuffles(x), num_warps=1, **launch_options(x),
        )  # fmt: skip
