"""Compiles for a GPU what operators launch, on a machine that has none.

The interpreter runs kernels that Triton's compiler refuses (a variable that changes its shape in a
branch, a tuple that grows in a loop). A test starts a child process without the interpreter, which
calls operators on CPU tensors: every launch is compiled down to machine code instead of run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction


def compile_instead_of_launching() -> list[Any]:
    """From now on a launch compiles its kernel for compute capability 9.0 and runs nothing.

    Compiled kernels are added to the list: `.name`, `.asm["ttgir"]`, `.asm["ptx"]`.
    """
    kernels: list[Any] = []

    class Absent:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

    def compiled(kernel: Any, grid: Any) -> Any:
        def launch(*arguments: Any, **options: Any) -> None:
            kernels.append(kernel.warmup(*arguments, grid=grid, **options))

        return launch

    triton.runtime.driver.set_active(Absent())
    JITFunction.__getitem__ = compiled
    return kernels


def assert_compiles(module: str, function: str, cache: Path) -> None:
    """Calls `module.function(kernels)` in a process in which launches compile.

    `kernels`: the list of those compiled so far. `cache`: a fresh folder.
    """
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = (
        "from tests.engine.kernels.compiling import compile_instead_of_launching as begin;"
        f"kernels = begin(); import {module}; {module}.{function}(kernels)"
    )
    done = subprocess.run(
        [sys.executable, "-c", command],
        env={**kept, "TRITON_CACHE_DIR": str(cache)},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert any(cache.rglob("*.cubin"))
