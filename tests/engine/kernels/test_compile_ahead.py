"""Kernels compiled by workers: the launch finds them in the cache, a failure is left to it."""

from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from engine.kernels.compile_ahead import compile_ahead, listed
from engine.kernels.dependent import launch_options
from engine.kernels.form import FloatForm
from tests.engine.kernels.compiling import assert_compiles


@triton.jit(do_not_specialize=["count"])
def sound(X, OUT, count, FORM: tl.constexpr, PDL: tl.constexpr):
    at = tl.arange(0, 32) + FORM.groups
    tl.store(OUT + at, tl.load(X + at, mask=at < count, other=0.0), mask=at < count)


@triton.jit
def broken(X):
    tl.store(X, missing)  # noqa: F821


def cached(kernels: list[Any]) -> None:
    """Two kernels of which one is launched with two constants, and one that cannot be compiled."""
    x, told, hits = torch.zeros(64), [], []

    def run() -> None:
        for groups in (3, 5, 3):
            sound[(1,)](x, x, groups, FORM=FloatForm(groups, 1, 4), **launch_options(x))
        sound[(1,)](x, x, 7, FORM=FloatForm(3, 1, 4), num_warps=2, **launch_options(x))

    def worse() -> None:
        run()
        broken[(1,)](x)

    assert len(listed(run)) == 3
    assert compile_ahead(worse, 1, lambda done, of: told.append((done, of))) == 3
    assert told == [(i, 4) for i in range(5)]
    assert not kernels or all(k is None for k in kernels)
    assert compile_ahead(run, 1, lambda done, of: told.append((done, of))) == 0
    triton.knobs.compilation.listener = lambda **seen: hits.append(seen["cache_hit"])
    run()
    assert hits == [True] * 3
    assert listed(run) == []


def test_launches_find_what_workers_compiled(tmp_path: Path) -> None:
    assert_compiles(__name__, "cached", tmp_path)


def test_the_interpreter_compiles_nothing() -> None:
    x = torch.zeros(8)
    assert compile_ahead(lambda: None) == 0
    assert listed(lambda: sound[(1,)](x, x, 8, FORM=FloatForm(0, 1, 4), PDL=False)) == []
