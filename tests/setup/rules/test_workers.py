"""Workers for hybrid processors and for several sockets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.hardware import Cpu
from setup.rules.workers import pool_workers, socket_tip


def cpu(cores: int = 8, fast: int = 0, slow: int = 0, sockets: int = 1) -> Cpu:
    return Cpu(
        name="A CPU",
        cores=cores,
        avx2=True,
        avx512=False,
        performance_cores=fast,
        efficiency_cores=slow,
        sockets=sockets,
    )


@pytest.mark.parametrize(
    ("fast", "slow", "workers"),
    [
        (8, 16, 15),  # 8 - 1 + 16 // 2
        (6, 8, 9),  # 6 - 1 + 4
        (6, 7, 8),  # 6 - 1 + 3
        (2, 8, 5),  # 2 - 1 + 4
        (1, 2, 1),  # 1 - 1 + 1
        (8, 8, None),  # only with more slow cores than fast ones
        (8, 4, None),
        (8, 9, 11),  # 8 - 1 + 4
        (0, 0, None),  # all cores are alike
        (0, 8, None),  # not known which are fast
    ],
)
def test_hybrid(fast: int, slow: int, workers: int | None) -> None:
    found = pool_workers(cpu(fast + slow, fast, slow))
    assert (found and found[0]) == workers
    if found:
        assert found[1] == f"pool workers {workers}: {fast} fast cores - 1 + {slow} slow ones / 2"


@pytest.mark.parametrize(
    ("cores", "sockets", "tried"),
    [
        (44, 2, 21),  # 22 each, less one
        (6, 2, 2),  # 3 each
        (5, 2, None),  # 2 each: too few
        (4, 2, None),
        (44, 1, None),
        (128, 4, 31),
        (8, 0, None),  # not known
    ],
)
def test_sockets(cores: int, sockets: int, tried: int | None) -> None:
    tip = socket_tip(cpu(cores, sockets=sockets))
    assert (tip is not None) == (tried is not None)
    if tip:
        assert f"--pool-workers {tried}," in tip


@given(fast=st.integers(0, 128), slow=st.integers(0, 256))
def test_workers_leave_a_core(fast: int, slow: int) -> None:
    found = pool_workers(cpu(max(1, fast + slow), fast, slow))
    if found:
        assert 1 <= found[0] < fast + slow
