"""The sampler against transformers' logits processors, OpenAI's formula and its own text."""

import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation import logits_process as hf

from engine.errors import RequestError
from engine.philox import draw
from engine.sampler import _exp, _filtered, _largest, _penalised, _weights, choose, report
from engine.sampling import Sampling

VOCAB = 200


def random_row(seed: int, vocab: int = VOCAB) -> np.ndarray:
    return (3 * np.random.default_rng(seed).standard_normal(vocab)).astype(np.float32)


def probabilities(row: np.ndarray, sampling: Sampling) -> np.ndarray:
    """What the sampler draws from, as a distribution over the vocabulary."""
    ids = _largest(row, sampling.top_k)
    weights = _weights(row[ids], sampling.temperature)
    weights = np.where(_filtered(weights, sampling), weights, 0)
    result = np.zeros(len(row))
    result[ids] = weights / weights.sum()
    return result


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.9]),
    top_k=st.sampled_from([0, 1, 5, 50, 500]),
    top_p=st.sampled_from([1.0, 0.95, 0.6, 0.1]),
    min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
)
def test_filters_equal_transformers(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    row = random_row(seed)
    scores = torch.from_numpy(row.astype(np.float64))[None]
    ids = torch.zeros((1, 0), dtype=torch.long)
    scores = hf.TemperatureLogitsWarper(temperature)(ids, scores)
    if top_k:
        scores = hf.TopKLogitsWarper(top_k)(ids, scores)
    if top_p < 1:
        scores = hf.TopPLogitsWarper(top_p)(ids, scores)
    if min_p > 0:
        scores = hf.MinPLogitsWarper(min_p)(ids, scores)
    expected = torch.softmax(scores, -1)[0].numpy()
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    actual = probabilities(row, sampling)
    # Weights are whole numbers, 2^-40 of the largest apart.
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    history=st.lists(st.integers(0, 30), max_size=80),
    repeat=st.sampled_from([0.8, 1.0, 1.1, 1.7]),
)
def test_the_repetition_penalty_equals_transformers(
    seed: int, history: list[int], repeat: float
) -> None:
    row = random_row(seed, 31)
    seen = torch.tensor([history], dtype=torch.long)
    oracle = hf.RepetitionPenaltyLogitsProcessor(repeat)(seen, torch.from_numpy(row.copy())[None])
    actual = _penalised(row, history, Sampling(penalty_repeat=repeat))
    np.testing.assert_array_equal(actual, oracle[0].numpy())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    history=st.lists(st.integers(0, 30), max_size=80),
    freq=st.floats(-2, 2, width=32),
    present=st.floats(-2, 2, width=32),
)
def test_frequency_and_presence_follow_openais_formula(
    seed: int, history: list[int], freq: float, present: float
) -> None:
    row = random_row(seed, 31)
    counts = np.bincount(history, minlength=31)
    expected = row - counts * freq - (counts > 0) * present
    sampling = Sampling(penalty_freq=freq, penalty_present=present)
    np.testing.assert_allclose(_penalised(row, history, sampling), expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    bias=st.dictionaries(st.integers(0, 30), st.floats(-100, 100, width=32), min_size=1),
)
def test_a_bias_equals_transformers(seed: int, bias: dict[int, float]) -> None:
    row = random_row(seed, 31)
    kept = row.copy()
    # That processor refuses a bias of 0.
    by_token = {(token,): value for token, value in bias.items() if value} or {(0,): 1e-30}
    oracle = hf.SequenceBiasLogitsProcessor(by_token)
    scores = oracle(torch.tensor([[0]]), torch.from_numpy(row.copy())[None])[0].numpy()
    sampling = Sampling(logit_bias=tuple(bias.items()))
    assert choose(row, [], 0, sampling) == int(np.argmax(scores))
    history = [1, 2, 2]
    more = {"temperature": 0.9, "seed": 4, "penalty_freq": 0.5}
    expected = choose(scores, history, 3, Sampling(**more))
    assert choose(row, history, 3, Sampling(logit_bias=tuple(bias.items()), **more)) == expected
    assert (row == kept).all(), "the row is left alone"


def test_penalties_see_the_last_n_tokens_only() -> None:
    row = np.zeros(4, np.float32)
    strict = Sampling(penalty_present=1.0, penalty_last_n=2)
    assert choose(row, [0, 1], 2, strict) == 2
    assert choose(row, [0, 1, 2], 3, strict) == 0


def test_penalties_come_before_the_greedy_choice_and_leave_the_row_alone() -> None:
    row = np.array([5.0, 4.0, -1.0], np.float32)
    assert choose(row, [0], 1, Sampling(penalty_repeat=2.0)) == 1
    assert row.tolist() == [5.0, 4.0, -1.0]


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    assert choose(np.array([1, 3, 3, 2], np.float32), [], 0, Sampling()) == 1


def test_top_k_takes_the_lowest_ids_of_equals() -> None:
    row = np.array([1, 2, 2, 2, 0], np.float32)
    assert _largest(row, 2).tolist() == [1, 2]
    assert _largest(row, 4).tolist() == [0, 1, 2, 3]
    assert _largest(row, 0).tolist() == _largest(row, 9).tolist() == [0, 1, 2, 3, 4]


def test_top_p_takes_the_lowest_ids_of_equals_and_at_least_one() -> None:
    weights = _weights(np.zeros(8, np.float32), 1.0)
    kept = _filtered(weights, Sampling(temperature=1.0, top_p=0.5))
    assert kept.tolist() == [True] * 4 + [False] * 4
    assert _filtered(weights, Sampling(temperature=1.0, top_p=0.0)).sum() == 1


def test_a_draw_follows_the_documented_integers() -> None:
    row = random_row(5)
    sampling = Sampling(temperature=0.8, seed=99)
    weights = [round(math.exp((float(x) - float(row.max())) / 0.8) * 2**40) for x in row]
    for position in range(50):
        target = sum(weights) * draw(99, position) >> 32
        running = np.cumsum(weights)
        assert choose(row, [], position, sampling) == int(np.argmax(running > target))


def test_draws_follow_the_distribution() -> None:
    row = random_row(7, 12)
    sampling = Sampling(temperature=1.0, top_p=0.9, seed=3)
    counts = np.bincount([choose(row, [], p, sampling) for p in range(4000)], minlength=12)
    expected = probabilities(row, sampling)
    spread = np.sqrt(expected * (1 - expected) / 4000)
    assert (np.abs(counts / 4000 - expected) <= 5 * spread).all()


@given(
    st.lists(st.floats(-60, 60, width=32), min_size=1, max_size=64),
    st.floats(1e-30, 4) | st.sampled_from([5e-324, 1.0, 0.7]),
)
def test_a_few_weights_are_those_of_many(logits: list[float], temperature: float) -> None:
    few = np.array(logits, np.float32)
    many = np.concatenate([few, np.full(65, few.min())])
    assert np.array_equal(_weights(few, temperature), _weights(many, temperature)[: len(few)])


def test_exp_is_within_two_units_in_the_last_place() -> None:
    x = -np.linspace(0, 32, 50001)
    np.testing.assert_allclose(_exp(x), [math.exp(v) for v in x], rtol=5e-16)
    assert _exp(np.zeros(1))[0] == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_logit_that_is_not_finite_is_an_error_that_names_it(bad: float) -> None:
    row = random_row(1)
    row[17] = bad
    with pytest.raises(RequestError, match=r"token 17 at position 6"):
        choose(row, [], 6, Sampling())


def test_a_very_low_temperature_is_greedy_in_effect() -> None:
    row = random_row(2)
    assert choose(row, [], 0, Sampling(temperature=1e-30, seed=1)) == int(row.argmax())


def test_reports_equal_torchs_log_softmax() -> None:
    row = random_row(3)
    choice = report(row, 11, 5, hashed=True)
    logs = torch.log_softmax(torch.from_numpy(row.astype(np.float64)), -1)
    best = torch.topk(logs, 5)
    assert choice.logprob == pytest.approx(float(logs[11]), rel=1e-12)
    assert [token for token, _ in choice.top] == best.indices.tolist()
    assert [value for _, value in choice.top] == pytest.approx(best.values.tolist(), rel=1e-12)
    assert choice.row_hash == hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest()


def test_nothing_is_reported_that_was_not_asked_for() -> None:
    choice = report(random_row(3), 11, None, hashed=False)
    assert (choice.token, choice.logprob, choice.top, choice.row_hash) == (11, None, (), None)
    assert report(random_row(3), 11, 0, hashed=False).top == ()
