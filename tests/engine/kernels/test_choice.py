"""The choice in PTX against a stable sort: ties, equal numbers at the border, any count."""

import numpy as np
import pytest

from engine.kernels.choice import CHOOSE
from tests.engine.kernels.warps import Program


def chosen(scores: np.ndarray, budget: int, warps: int) -> list[int]:
    """What the text stores; behind the last whole run of 16 scores lies nothing."""
    padded = np.full(-(-len(scores) // 16) * 16, -1, np.float32)
    padded[: len(scores)] = scores
    out = np.full(budget, -7, np.int32)
    given = {"$3": len(scores), "$4": budget}
    Program(CHOOSE.value, warps, given, {"$1": padded.view(np.int32), "$2": out}).run()
    return out.tolist()


def wanted(scores: np.ndarray, budget: int) -> list[int]:
    """The largest, equal ones lowest first."""
    return sorted(np.argsort(-scores, kind="stable")[:budget].tolist())


RANDOM = np.random.default_rng(5)
SCORES = {
    "random": lambda n: RANDOM.exponential(1, n),
    "many zeros": lambda n: np.maximum(RANDOM.normal(0, 1, n), 0) * (RANDOM.random(n) < 0.3),
    "few values": lambda n: RANDOM.integers(0, 4, n) * 0.25,
    "all equal": lambda n: np.full(n, 1.5),
    "all zero": lambda n: np.zeros(n),
    "close": lambda n: 1 + RANDOM.integers(0, 60, n) * 2.0**-23,
    "wide": lambda n: np.exp(RANDOM.uniform(-80, 80, n)),
    "infinite": lambda n: np.where(RANDOM.random(n) < 0.5, np.inf, 1.0),
}


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize(("count", "budget", "warps"), [(17, 16, 1), (300, 40, 2), (2100, 77, 4)])
def test_chooses(kind: str, count: int, budget: int, warps: int) -> None:
    """More scores than all threads take at once, and fewer."""
    scores = SCORES[kind](count).astype(np.float32)
    assert chosen(scores, budget, warps) == wanted(scores, budget)
