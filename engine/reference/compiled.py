"""How the loops of the reference are compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
T = TypeVar("T")

_SOURCES = Path(__file__).parent


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Compiles to machine code on the first call; later processes read it from `__pycache__`.

    IEEE float32 as written: no fast math, no fused multiply-add, division by zero gives infinity.
    The GIL is released, so the server and other threads go on.
    """
    with _kept_in(cache_folder()):
        jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=False)
        return cast(Callable[P, T], jit(function))


@cache
def cache_folder() -> Path:
    """Where machine code of exactly these sources is kept.

    Code of a function has the code of those it calls in it, whichever file they are in, and numba
    only looks at the function's own file: after an update of one file it would run the old callees,
    on arrays that may have another shape by now.
    """
    return _SOURCES / "__pycache__" / f"numba-{sources_digest(_SOURCES)}"


def sources_digest(folder: Path) -> str:
    """Changes with the name or the text of any Python file in the folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        text = path.read_bytes()
        digest.update(f"{path.name} {len(text)} ".encode() + text)
    return digest.hexdigest()[:16]


def compiled_before() -> bool:
    """False on the first start after an installation or an update, which takes longer for it."""
    return any(cache_folder().glob("**/*.nbi"))


@contextmanager
def _kept_in(folder: Path) -> Iterator[None]:
    """Functions compiled here are kept in the folder, if it can be written."""
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(Path(before) / folder.name if before else folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before
