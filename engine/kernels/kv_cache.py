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

from engine.rows import Rows

KvKind = Literal["f32", "fp16", "int8"]

SCALE_VALUES = 64
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
        return cls(
            torch.zeros(slots, context, heads, length, dtype=_DTYPES[kind], device=device),
            torch.zeros(scaled, context, heads, groups, dtype=torch.float16, device=device),
        )

    @property
    def coded(self) -> bool:
        """Whether the values are codes with scales."""
        return self.values.dtype == torch.int8


@dataclass(frozen=True, slots=True, eq=False)
class KvCache:
    """The keys and values of one attention layer."""

    keys: Cells
    values: Cells

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
def store_vector(x, VALUES, SCALES, K: tl.constexpr, CODED: tl.constexpr, B: tl.constexpr):
    """Stores float32 [B] of which K count, zeros from K on. VALUES, SCALES: where it starts."""
    at = tl.arange(0, B)
    if CODED:
        GROUPS: tl.constexpr = (K + 63) // 64
        x = tl.reshape(x, [B // 64, 64])
        # The bits of sizes order like the sizes, and NaN comes after infinity.
        amax = tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)
        amax = amax.to(tl.float32, bitcast=True)
        scale = tl.div_rn(amax, tl.full([B // 64], 127.0, tl.float32)).to(tl.float16)
        wide = scale.to(tl.float32)
        # Where the scale is not finite it alone carries that on.
        usable = (wide > 0) & (wide < float("inf"))
        below, _ = tl.broadcast(tl.where(usable, wide, 1.0)[:, None], x)
        ratio = tl.where(usable[:, None], tl.div_rn(x, below), 0.0)
        ratio = tl.where(ratio > 127.0, 127.0, tl.where(ratio < -127.0, -127.0, ratio))
        codes = tl.reshape(((ratio + ROUND) - ROUND).to(tl.int8), [B])
        group = tl.arange(0, B // 64)
        tl.store(VALUES + at, codes, mask=at < K)
        tl.store(SCALES + group, scale, mask=group < GROUPS)
    else:
        tl.store(VALUES + at, x.to(VALUES.dtype.element_ty), mask=at < K)


@triton.jit
def read_values(VALUES, SCALES, vector, at, live, K: tl.constexpr, CODED: tl.constexpr):
    """Stored values as float32: `vector` counts vectors from the start of all cells, int64, `at`
    is below K; both and `live` have one shape or broadcast. 0 where not `live`."""
    x = tl.load(VALUES + vector * K + at, mask=live, other=0.0).to(tl.float32)
    if CODED:
        GROUPS: tl.constexpr = (K + 63) // 64
        scale = tl.load(SCALES + vector * GROUPS + at // 64, mask=live, other=0.0)
        x = x * scale.to(tl.float32)
    return x


@triton.jit(
    do_not_specialize=["context"],
    do_not_specialize_on_alignment=["SLOTS", "POSITIONS"],
)
def store_kernel(
    X, VALUES, SCALES, SLOTS, POSITIONS, context, K: tl.constexpr, CODED: tl.constexpr,
    B: tl.constexpr,
):  # fmt: skip
    """Grid (heads, rows)."""
    row = tl.program_id(1).to(tl.int64)
    heads = tl.num_programs(0)
    at = tl.arange(0, B)
    source = X + (row * heads + tl.program_id(0)) * K + at
    cell = tl.load(SLOTS + row).to(tl.int64) * context + tl.load(POSITIONS + row)
    vector = cell * heads + tl.program_id(0)
    GROUPS: tl.constexpr = (K + 63) // 64
    x = tl.load(source, mask=at < K, other=0.0)
    store_vector(x, VALUES + vector * K, SCALES + vector * GROUPS, K, CODED, B)


def block_of(length: int) -> int:
    """Values that a program holds for a vector: a power of two, whole scales at least."""
    return max(SCALE_VALUES, 1 << (length - 1).bit_length())


def store(cells: Cells, x: torch.Tensor, rows: Rows) -> None:
    """Writes float32 [R, H, K] at every row's slot and position."""
    count, heads, length = x.shape
    if count:
        store_kernel[(heads, count)](
            x.contiguous(), cells.values, cells.scales, rows.slots, rows.positions,
            cells.values.shape[1], K=length, CODED=cells.coded, B=block_of(length), num_warps=1,
            enable_fp_fusion=False,
        )  # fmt: skip
