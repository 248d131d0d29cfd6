"""How the loops of the reference are compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
T = TypeVar("T")


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Compiles to machine code on the first call; later processes read it from `__pycache__`.

    IEEE float32 as written: no fast math, no fused multiply-add, division by zero gives infinity.
    The GIL is released, so the server and other threads go on.
    """
    jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=False)
    return cast(Callable[P, T], jit(function))


def compiled_before() -> bool:
    """False on the first start after an installation, which takes longer for it."""
    return any(Path(__file__).parent.glob("__pycache__/*.nbi"))
