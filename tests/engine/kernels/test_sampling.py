"""Choices of the sampling kernels against the sampler on the whole row."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kernels.sampling import Chooser, ids_at, rows_at, spread_rows
from engine.logits import CANDIDATES, WIDE
from engine.models.asks import Ask
from engine.models.device_logits import DeviceLogits
from engine.sampler import _filtered, _largest, _weights, choose, choose_among
from engine.sampling import Sampling
from tests.engine.kernels.compiling import assert_compiles

WIDTHS = (5, 64, 65, 300, 5000)


def rows_of_logits(seed: int, count: int, width: int, steps: int) -> np.ndarray:
    """Random rows; `steps` 0: floats, else that many steps from -1 to 1, so that many are equal."""
    random = np.random.default_rng(seed)
    rows = 3 * random.standard_normal((count, width))
    if steps:
        rows = np.round(rows.clip(-1, 1) * steps) / steps
    return rows.astype(np.float32)


def chosen(rows: np.ndarray, asks: list[Ask], room: int = 8) -> DeviceLogits:
    """The rows, as on a device."""
    logits = torch.from_numpy(rows)
    chooser = Chooser(room, rows.shape[1], "cpu")
    chooser.find_best(-logits)  # leaves nothing that the next one reads
    chooser.find_best(logits)
    return DeviceLogits(logits, chooser, range(len(rows)), asks)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_best_and_candidates(width: int, steps: int) -> None:
    rows = rows_of_logits(width + steps, 3, width, steps)
    rows[1][rows[1] == 0] = -0.0
    asks = [Ask(row, 1, Sampling(temperature=1.0, top_k=2)) for row in (2, 1)]
    logits = chosen(rows, asks)
    for row in range(3):
        assert logits.best(row) == rows[row].argmax()
    assert logits.candidates(0) is None
    for row in (1, 2):
        found = logits.candidates(row)
        assert found is not None
        assert found.ids.tolist() == _largest(rows[row], CANDIDATES).tolist()
        assert np.array_equal(found.logits, rows[row][found.ids])
        assert found.all == (width <= CANDIDATES)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 17, 299])
def test_a_row_that_is_not_finite_says_so_and_no_other(bad: float, at: int) -> None:
    rows = rows_of_logits(1, 3, 300, 0)
    rows[1, at] = bad
    rows[0, 5], rows[2, 7] = 3e38, -3e38
    logits = chosen(rows, [Ask(row, 9, Sampling(temperature=1.0, seed=3)) for row in range(3)])
    assert [logits.best(row) for row in range(3)] == [5, -1, rows[2].argmax()]
    assert logits.drawn(0) == choose(rows[0], [], 9, Sampling(temperature=1.0, seed=3))
    assert logits.drawn(2) == choose(rows[2], [], 9, Sampling(temperature=1.0, seed=3))


def test_all_logits_alike() -> None:
    rows = np.zeros((1, 5000), np.float32)
    sampling = Sampling(temperature=0.5, seed=8)
    logits = chosen(rows, [Ask(0, 40, sampling)])
    assert logits.best(0) == 0
    found = logits.candidates(0)
    assert found is not None
    assert found.ids.tolist() == list(range(CANDIDATES))
    assert found.total == 5000 << 40
    assert logits.drawn(0) == choose(rows[0], [], 40, sampling)


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 1e-30, 0.01, 0.3, 0.7, 1.0, 1.9, 30.0]),
    top_k=st.sampled_from([0, 0, 1, 5, 20, 64, 65, 400]),
    top_p=st.sampled_from([1.0, 1.0, 0.95, 0.6, 0.1, 0.0]),
    min_p=st.sampled_from([0.0, 0.0, 0.02, 0.3, 1.0]),
    seed=st.integers(0, 2**63 - 1),
    penalty_repeat=st.sampled_from([1.0, 1.0, 1.1, 3.0, 0.8]),
    penalty_freq=st.sampled_from([0.0, 0.0, 0.5, -0.5]),
    penalty_present=st.sampled_from([0.0, 0.0, 1.0, -1.0]),
    penalty_last_n=st.sampled_from([0, 3, 64]),
)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    width=st.sampled_from(WIDTHS),
    steps=st.sampled_from([0, 0, 1, 4, 1000]),
    likely=st.sampled_from([0, 1, 70]),
    sampling=samplings,
    position=st.integers(0, 10**6),
)
def test_what_the_device_says_is_what_the_sampler_chooses(
    seed: int, width: int, steps: int, likely: int, sampling: Sampling, position: int
) -> None:
    """Of rows with `likely` tokens well above the others, some of them seen before."""
    rows = rows_of_logits(seed, 2, width, steps)
    random = np.random.default_rng(seed + 1)
    rows[:, random.integers(0, width, likely)] += 6
    before = random.integers(0, width, 40).tolist() + _largest(rows[1], 30).tolist()
    logits = chosen(rows, [Ask(1, position, sampling)])
    wanted = choose(rows[1], before, position, sampling)
    drawn, found = logits.drawn(1), logits.candidates(1)
    assert found is not None
    told = [drawn, choose_among(found, before, position, sampling)]
    assert all(token in (None, wanted) for token in told)
    simple = 0 < sampling.top_k <= CANDIDATES or sampling.greedy
    whole = not (sampling.top_k or sampling.top_p < 1)
    if not sampling.penalises and (simple or whole):
        assert wanted in told


def test_the_sum_of_weights_says_what_top_p_keeps() -> None:
    """A nucleus among the candidates is exact, a wider one is left to the whole row."""
    rows = rows_of_logits(4, 1, 5000, 0)
    narrow = Sampling(temperature=0.5, top_p=0.5, seed=1)
    wide = Sampling(temperature=30.0, top_p=0.9, seed=1)
    for sampling, told in ((narrow, True), (wide, False)):
        found = chosen(rows, [Ask(0, 7, sampling)]).candidates(0)
        assert found is not None
        weights = _weights(rows[0], sampling.temperature)
        assert found.total == weights.sum()
        kept = _filtered(weights, sampling)
        assert kept is not None
        assert (kept.sum() <= WIDE) == told
        token = choose_among(found, [], 7, sampling)
        assert token == (choose(rows[0], [], 7, sampling) if told else None)


def test_the_likeliest_tokens_and_their_share() -> None:
    rows = rows_of_logits(6, 3, 5000, 0)
    rows[1, 7] = np.nan
    tokens, told = torch.zeros(3, dtype=torch.int64), torch.zeros(3, 2, dtype=torch.int64)
    Chooser(4, 5000, "cpu").likeliest(torch.from_numpy(rows), tokens, told)
    assert tokens.tolist() == told[:, 0].tolist() == [rows[0].argmax(), 0, rows[2].argmax()]
    sums = [int(_weights(rows[row], 1.0).sum()) for row in (0, 2)]
    assert told[:, 1].tolist() == [sums[0], 0, sums[1]]


def test_rows_go_to_places_and_come_back() -> None:
    random = torch.Generator().manual_seed(1)
    source, target = torch.randn(4, 2, 700, generator=random), torch.zeros(6, 2, 700)
    spread_rows(source, target, torch.tensor([5, -1, 0, 2], dtype=torch.int32))
    assert torch.equal(target[[5, 0, 2]], source[[0, 2, 3]])
    assert not target[[1, 3, 4]].any()
    places = torch.tensor([2, 2, 5], dtype=torch.int32)
    assert torch.equal(rows_at(target, places), target[[2, 2, 5]])
    ids = torch.tensor([7, 1 << 20, 0, -(1 << 40)])
    assert torch.equal(ids_at(ids, torch.tensor([3, 1, 1])), ids[[3, 1, 1]])


def kernels_of_a_vocabulary(kernels: list[Any]) -> None:
    """All of them, for 248,320 tokens."""
    chooser = Chooser(1, 248_320, "cpu")
    logits = torch.zeros(1, 248_320)
    chooser.find_best(logits)
    for most in (CANDIDATES, WIDE):
        chooser.ask(logits, [Ask(0, 1, Sampling(temperature=1.0)).words], most)
    chooser.likeliest(
        logits, torch.zeros(1, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.int64)
    )
    rows_at(logits, torch.zeros(1, dtype=torch.int32))
    assert len({kernel.hash for kernel in kernels}) == 7
    assert not any("fma." in kernel.asm["ptx"] for kernel in kernels)


def test_compiles(tmp_path: Path) -> None:
    assert_compiles(__name__, "kernels_of_a_vocabulary", tmp_path)
