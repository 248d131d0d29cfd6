"""Launches of the kernels over prepared buffers, for the checks and for the timings."""

from dataclasses import dataclass, field

import torch

from scripts.order_of_sums import float_kernels, integer_kernels
from scripts.order_of_sums.records import Activations, Matrix, quantise_rows

NAN = float("nan")


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def parts_for(tiles: int, segments: int) -> int:
    """Programs along K: split by segments unless the tiles alone fill the chip several times."""
    return segments if tiles < 528 else 1


@dataclass(slots=True)
class IntegerRun:
    """One matrix shape with rotating records and 16 rows of activations."""

    matrix: Matrix
    x: Activations
    records: list[torch.Tensor]
    asm: bool
    parts: int = 0
    partial: torch.Tensor = field(init=False)
    counters: torch.Tensor = field(init=False)
    out: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        m, device = self.matrix, self.x.scale.device
        segments = ceil_div(m.k, 512)
        self.parts = self.parts or parts_for(m.n // m.bn, segments)
        rows = ceil_div(self.x.q.shape[0], 16) * 16
        self.partial = torch.full((segments, rows, m.n), NAN, device=device)
        self.counters = torch.zeros(m.n // m.bn * rows, dtype=torch.int32, device=device)
        self.out = torch.full((rows, m.n), NAN, device=device)

    def launch(
        self, rows: int, tensor_cores: bool, which: int = 0, warps: int = 0, tile: int = 16
    ) -> None:
        """Computes `rows` rows into `out`."""
        m = self.matrix
        segments = ceil_div(m.k, 512)
        kernel = integer_kernels.mma if tensor_cores else integer_kernels.gemv
        r = tile if tensor_cores else 1 << (rows - 1).bit_length()
        grid = (m.n // m.bn, self.parts, ceil_div(rows, r) if tensor_cores else 1)
        kernel[grid](
            self.x.woven if tensor_cores else self.x.words, self.x.scale, self.x.sums,
            self.records[which], self.counters, self.counters, self.partial, self.counters,
            self.out, rows, m.n, m.k, ceil_div(segments, self.parts), *m.offsets[1:],
            R=r, BN=m.bn, CODES=m.kind.codes, MULS=m.kind.multipliers, DG=m.kind.scale_groups,
            MIN=m.kind.minimum, EXPERTS=False, ASM=self.asm, enable_fp_fusion=False,
            num_warps=warps or (2 if m.bn == 64 else 1),
        )  # fmt: skip


def integer_run(
    matrix: Matrix, asm: bool, copies: int = 1, rows: int = 16, parts: int = 0
) -> IntegerRun:
    """Fresh random rows for a matrix."""
    device = str(matrix.record.device)
    x = torch.randn(rows, matrix.k, device=device) * 3
    x[1, :64] = 0.0  # a group of zeros has scale 0
    records = [matrix.record] + [matrix.record.clone() for _ in range(copies - 1)]
    return IntegerRun(matrix, quantise_rows(x), records, asm, parts)


@dataclass(slots=True)
class ExpertRun:
    """Pairs of (expert, rows) through a table of record addresses."""

    matrices: list[Matrix]
    addresses: torch.Tensor  # int64 [experts]
    experts: torch.Tensor  # int32 [pairs]
    rows: torch.Tensor  # int32 [pairs, R]
    x: Activations
    out: torch.Tensor
    partial: torch.Tensor
    counters: torch.Tensor

    def launch(self, tensor_cores: bool, which: int = 0) -> None:
        """Computes every pair into `out` [pairs, R, N]."""
        m = self.matrices[0]
        pairs, r = self.rows.shape
        segments = ceil_div(m.k, 512)
        kernel = integer_kernels.mma if tensor_cores else integer_kernels.gemv
        kernel[(m.n // m.bn, segments, pairs)](
            self.x.woven if tensor_cores else self.x.words, self.x.scale, self.x.sums,
            self.addresses, self.experts[which * pairs :], self.rows, self.partial, self.counters,
            self.out,
            r, m.n, m.k, 1, *m.offsets[1:],
            R=r, BN=m.bn, CODES=m.kind.codes, MULS=m.kind.multipliers, DG=m.kind.scale_groups,
            MIN=m.kind.minimum, EXPERTS=True, ASM=True, enable_fp_fusion=False, num_warps=1,
        )  # fmt: skip


def expert_run(matrices: list[Matrix], addresses: torch.Tensor, experts: torch.Tensor,
               rows: torch.Tensor, x: Activations) -> ExpertRun:  # fmt: skip
    """Allocates the outputs of a set of pairs."""
    m, device = matrices[0], addresses.device
    pairs, r = rows.shape
    return ExpertRun(
        matrices, addresses, experts, rows, x,
        torch.full((pairs, r, m.n), NAN, device=device),
        torch.full((ceil_div(m.k, 512), pairs, r, m.n), NAN, device=device),
        torch.zeros(pairs * m.n // m.bn, dtype=torch.int32, device=device),
    )  # fmt: skip


@dataclass(slots=True)
class FloatRun:
    """One BF16 matrix with rotating copies and float32 rows."""

    n: int
    k: int
    bn: int
    weights: list[torch.Tensor]  # bf16 tiles [N/BN, G, BN, 32]
    x: torch.Tensor  # float32 [padded rows, K]
    xt: torch.Tensor  # float32 [K, padded rows]
    partial: torch.Tensor
    counters: torch.Tensor
    out: torch.Tensor

    def rows_kernel(
        self, rows: int, which: int = 0, fma: bool = False, r: int = 0, warps: int = 4
    ) -> None:
        """dot32 with the lanes last."""
        r = r or 1 << (rows - 1).bit_length()
        parts = parts_for(self.n // self.bn * ceil_div(rows, r), ceil_div(self.k, 512))
        float_kernels.dot32_rows[(self.n // self.bn, parts, ceil_div(rows, r))](
            self.x, self.weights[which], self.partial, self.counters, self.out,
            rows, self.n, self.k, ceil_div(ceil_div(self.k, 512), parts), R=r, BN=self.bn,
            U=2, FMA=fma, num_warps=warps, enable_fp_fusion=False,
        )  # fmt: skip

    def tile_kernel(
        self, rows: int, which: int = 0, fma: bool = False, r: int = 16, bn: int = 8, warps: int = 4
    ) -> None:
        """dot32 with the lanes first."""
        bn = min(bn, self.bn)
        parts = parts_for(self.n // bn * ceil_div(rows, r), ceil_div(self.k, 512))
        float_kernels.dot32_tile[(self.n // bn, parts, ceil_div(rows, r))](
            self.xt, self.weights[which], self.partial, self.counters, self.out,
            rows, self.xt.shape[1], self.n, self.k,
            ceil_div(ceil_div(self.k, 512), parts), R=r, BN=bn,
            TILE=self.bn, FMA=fma, num_warps=warps, enable_fp_fusion=False,
        )  # fmt: skip


def float_run(
    n: int, k: int, device: str, copies: int = 1, rows: int = 16
) -> tuple[FloatRun, torch.Tensor]:
    """Fresh random BF16 weights and float32 rows; also returns the weights [N, K]."""
    bn = min(32, n) if k <= 512 or n < 32 else 16
    w = torch.randn(n, k, device=device).bfloat16()
    x = torch.randn(ceil_div(rows, 16) * 16, k, device=device)
    tiled = w.view(n // bn, bn, k // 32, 32).transpose(1, 2).contiguous()
    weights = [tiled] + [tiled.clone() for _ in range(copies - 1)]
    out = torch.full((x.shape[0], n), NAN, device=device)
    partial = torch.full((ceil_div(k, 512), x.shape[0], n), NAN, device=device)
    counters = torch.zeros(n * x.shape[0], dtype=torch.int32, device=device)
    run = FloatRun(n, k, bn, weights, x, x.t().contiguous(), partial, counters, out)
    return run, w
