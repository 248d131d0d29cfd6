"""Compiles the kernels of attention, norms, hyper-connections and n-grams without a GPU.

`python -m scripts.compile_kernels [NAME]`, for cases whose name has NAME in it. The interpreter
accepts what the compiler does not, and says nothing about layouts: for every kernel this prints the
barriers and the layout changes that the compiler put in. Nothing runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from engine.rows import rows_of
from scripts import gpu_check_attention as check

TARGET = GPUTarget("cuda", 90, 32)


class NoDriver:
    """What Triton asks of a driver before it launches."""

    utils = None

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return TARGET

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


def compile_only() -> None:
    """Makes every launch of this process a compilation that is told."""
    triton.runtime.driver.set_active(NoDriver())
    run = JITFunction.run
    told = set()

    def tell(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        compiled = run(self, *args, grid=grid, warmup=True, **options)
        if compiled.hash not in told:
            told.add(compiled.hash)
            barriers = compiled.asm["ptx"].count("bar.sync")
            changes = compiled.asm["ttgir"].count("convert_layout")
            fused = compiled.asm["ptx"].count("fma.")
            print(
                f"  {self.__name__:22} {compiled.metadata.num_warps} warps,"
                f" {compiled.metadata.shared:6} bytes shared, {barriers:3} barriers,"
                f" {changes:3} layout changes, {fused} fma",
                flush=True,
            )
        return compiled

    JITFunction.run = tell


def cases(side: Any) -> dict[str, Callable[[], object]]:
    """One call for each way through an operator."""

    def attention(kind: str, config: Any, rows: int, ratio: int) -> Callable[[], object]:
        span = [(0, 0, rows, rows)]
        return lambda: check.AttentionCase(side, kind, config, 4096, (), span, ratio).run()

    def table(kind: str) -> Callable[[], object]:
        return lambda: check.table(side, kind).rows(torch.zeros(1, dtype=torch.int64))

    def hashes() -> object:
        ring = torch.zeros(1, 9, dtype=torch.int64)
        return side.ngram_rows(ring[0, :1], ring, check.NGRAM, rows_of([(0, 0, 1, 1)]))

    return {
        "rms_norm": lambda: side.rms_norm(torch.zeros(1, 10240), torch.zeros(2560), 2560, 1e-6),
        "attention sparse int8": attention("int8", check.SPARSE, 1, 4),
        "attention sparse int8, many rows": attention("int8", check.SPARSE, 600, 4),
        "attention dense fp16": attention("fp16", check.DENSE, 1, 0),
        "indexer": lambda: check.IndexerCase(side, 16384, [(0, 0, 1, 1)]).run(),
        "hyper BF16": lambda: list(check.HyperCase(side, 1, "BF16").outputs()),
        "hyper BF16, 4 rows": lambda: list(check.HyperCase(side, 4, "BF16").outputs()),
        "hyper Q8_0": lambda: list(check.HyperCase(side, 1, "Q8_0").outputs()),
        "ngram_rows": hashes,
        **{f"table {kind}": table(kind) for kind in check.TABLES},
    }


def main() -> None:
    """Compiles what was asked for."""
    compile_only()
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    for name, call in cases(check.device_side("cpu")).items():
        if wanted in name:
            print(name, flush=True)
            call()


if __name__ == "__main__":
    main()
