"""From a row of logits to a token. A GPU twin follows this text and gets the same tokens.

1. The logits are float32 and finite; anything else ends the request.
2. `logit_bias`, float32, is added. Penalties, float32, for each distinct token of the last
   `penalty_last_n` ones (prompt and answer), `count` times among them: `l = l / repeat` if
   `l > 0`, else `l * repeat`; then `l = l - (count * freq + present)`.
   A constraint leaves out the tokens that it forbids: what follows sees the others alone.
3. Temperature 0: the largest logit, the lowest token id among equals. Nothing more happens.
4. `top_k` > 0: the k largest, of equal ones the lowest ids.
5. Weights: `x = (l - max) / temperature` in float64; `w = rint(exp(x) * 2^40)`, a whole number.
   `exp` is the explicit sequence of float64 operations in `_exp`; where x < -32 the weight is 0.
   **From here on everything is integer**, so no sum depends on an order.
6. `top_p` < 1: in the order of falling weight (of equal ones the lower id first) as few tokens as
   make `total * p`, p being `round(top_p * 2^32) / 2^32`; at least one.
7. `min_p` > 0: weights of at least `2^40 * p`, p rounded likewise.
8. Draw: u is 32 random bits of `(seed, position)`, target `total * u / 2^32` rounded down; the
   first token in the order of ids at which the running sum of weights is above the target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import ldexp
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.errors import RequestError
from engine.logits import Candidates, Floats, Whole
from engine.philox import draw
from engine.sampling import Sampling

Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

ONE = 1 << 40
"""The weight of the largest logit."""
_LOWEST = -32.0
_BLOCK = 8192
"""Logits that are weighed at a time, so that what lies between the operations stays in a cache."""
_FEW = 64
"""Logits that are weighed one by one."""
_LOG2_E = 1.4426950408889634
# ln 2 in two parts; the first has zeros at its end, so that k * first is exact for small k.
_LN2_HIGH = 0.6931471803691238
_LN2_LOW = 1.9082149292705877e-10
_INVERSE_FACTORIALS = tuple(1.0 / n for n in (
    6227020800, 479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2, 1, 1
))  # fmt: skip


class Choice(NamedTuple):
    """A token, and what was asked to be reported of the row that it was chosen from."""

    token: int
    logprob: float | None = None
    """Natural log-probability by the raw logits, before penalties, temperature and filters."""
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens and their log-probabilities, best first."""
    row_hash: str | None = None
    """blake2b (8 bytes, hex) of the row's float32 logits, little-endian."""


def choose(
    row: Floats,
    before: Sequence[int],
    position: int,
    sampling: Sampling,
    allowed: Mask | None = None,
) -> int:
    """The token at `position`, from the logits [vocab] of the row at `position - 1`; one of the
    `allowed` ones [vocab], where they are said.

    `before` ends in the tokens before `position`; at least the last `penalty_last_n` of them, where
    there are so many. Raises `RequestError` when a logit is not finite, or nothing is allowed.
    """
    if not np.isfinite(row).all():
        bad = int(np.flatnonzero(~np.isfinite(row))[0])
        raise RequestError(f"the logit of token {bad} at position {position} is {row[bad]}")
    if sampling.logit_bias:
        row = _biased(row, sampling.logit_bias)
    if sampling.penalises:
        row = _penalised(row, before[-sampling.penalty_last_n :], sampling)
    if allowed is None:
        return _chosen(row, position, sampling)
    ids = np.flatnonzero(allowed)
    if not len(ids):
        raise RequestError(f"response_format: no token may stand at position {position}")
    return int(ids[_chosen(row[ids], position, sampling)])


def _chosen(row: Floats, position: int, sampling: Sampling) -> int:
    if sampling.greedy:
        return int(np.argmax(row))
    ids = _largest(row, sampling.top_k)
    weights = _weights(row[ids], sampling.temperature)
    kept = _filtered(weights, sampling)
    assert kept is not None
    return _drawn(ids, weights, kept, position, sampling)


def choose_among(
    candidates: Candidates, before: Sequence[int], position: int, sampling: Sampling
) -> int | None:
    """What `choose` gives for the candidates' row; None when they do not say.

    A penalised token may fall below tokens that are no candidates. It says nothing then, and
    neither do penalties that raise a logit.
    """
    ids, logits, bound = candidates.ids, candidates.logits, -np.inf
    if sampling.penalises:
        if not (candidates.all or sampling.lowers):
            return None
        bound = -np.inf if candidates.all else float(logits.min())
        logits = _penalised_among(ids, logits, before[-sampling.penalty_last_n :], sampling)
    if sampling.greedy:
        best = int(np.argmax(logits))
        return int(ids[best]) if logits[best] > bound else None
    if candidates.all or 0 < sampling.top_k <= len(ids):
        largest = _largest(logits, sampling.top_k)
        ids, logits = ids[largest], logits[largest]
        if logits.min() <= bound:
            return None
        weights = _weights(logits, sampling.temperature)
        kept = _filtered(weights, sampling)
    elif sampling.top_k or sampling.penalises or candidates.total is None:
        return None
    else:
        weights = _weights(logits, sampling.temperature)
        # Rounding may turn the order of two weights that are almost equal, by one.
        kept = _filtered(weights, sampling, candidates.total, int(weights.min()) + 1)
    return None if kept is None else _drawn(ids, weights, kept, position, sampling)


def _drawn(ids: Whole, weights: Whole, kept: Mask, position: int, sampling: Sampling) -> int:
    ids = ids[kept]
    sums = np.cumsum(weights[kept])
    target = int(sums[-1]) * draw(sampling.seed, position) >> 32
    return int(ids[np.searchsorted(sums, target, side="right")])


def probability(row: Floats) -> float:
    """Of the likeliest token, at temperature 1."""
    return ONE / int(_weights(row, 1.0).sum())


def least_weight(sampling: Sampling) -> int:
    """The least weight that passes `min_p`."""
    return ONE * round(sampling.min_p * 2**32) >> 32


def report(row: Floats, token: int, top: int | None, hashed: bool) -> Choice:
    """`token` with its log-probability and the `top` likeliest (`None`: neither) and a hash."""
    row_hash = hash_row(row) if hashed else None
    if top is None:
        return Choice(token, row_hash=row_hash)
    shifted = row.astype(np.float64) - float(row.max())
    logs = shifted - np.log(np.exp(shifted).sum())
    best = _largest(row, top) if top else np.empty(0, np.int64)
    best = best[np.argsort(-row[best], kind="stable")]
    pairs = tuple((int(i), float(logs[i])) for i in best)
    return Choice(token, float(logs[token]), pairs, row_hash)


def hash_row(row: Floats) -> str:
    """blake2b (8 bytes, hex) of a row's float32 logits, little-endian."""
    return hashlib.blake2b(row.astype("<f4", copy=False).tobytes(), digest_size=8).hexdigest()


def _biased(row: Floats, bias: Sequence[tuple[int, float]]) -> Floats:
    row = row.copy()
    row[[token for token, _ in bias]] += np.array([value for _, value in bias], np.float32)
    return row


def _penalised(row: Floats, seen: Sequence[int], sampling: Sampling) -> Floats:
    ids, counts = np.unique(np.asarray(seen, np.int64), return_counts=True)
    row = row.copy()
    row[ids] = _after_penalties(row[ids], counts, sampling)
    return row


def _penalised_among(ids: Whole, logits: Floats, seen: Sequence[int], sampling: Sampling) -> Floats:
    """`_penalised` for the logits of some ids."""
    found, counts = np.unique(np.asarray(seen, np.int64), return_counts=True)
    at = np.minimum(np.searchsorted(ids, found), len(ids) - 1)
    there = ids[at] == found
    at = at[there]
    logits = logits.copy()
    logits[at] = _after_penalties(logits[at], counts[there], sampling)
    return logits


def _after_penalties(old: Floats, counts: Whole, sampling: Sampling) -> Floats:
    repeat = np.float32(sampling.penalty_repeat)
    old = np.where(old > 0, old / repeat, old * repeat)
    loss = counts.astype(np.float32) * np.float32(sampling.penalty_freq)
    return old - (loss + np.float32(sampling.penalty_present))


def _largest(row: Floats, count: int) -> Whole:
    """Ids of the `count` largest (0: all), ascending; of equal ones the lowest ids."""
    if not 0 < count < len(row):
        return np.arange(len(row))
    bound = np.partition(row, len(row) - count)[len(row) - count]
    above, equal = np.flatnonzero(row > bound), np.flatnonzero(row == bound)
    return np.sort(np.concatenate([above, equal[: count - len(above)]]))


def _weights(logits: Floats, temperature: float) -> Whole:
    if len(logits) <= _FEW:
        return _few_weights(logits.tolist(), temperature)
    largest = float(logits.max())
    weights = np.zeros(len(logits), np.int64)
    for start in range(0, len(logits), _BLOCK):
        x = logits[start : start + _BLOCK].astype(np.float64)
        x -= largest
        with np.errstate(over="ignore"):  # minus infinity at a tiny temperature: weight 0
            x /= temperature
        some = np.flatnonzero(x >= _LOWEST)
        weights[start + some] = np.rint(_exp(x[some]) * float(ONE))
    return weights


def _few_weights(logits: list[float], temperature: float) -> Whole:
    """`_weights` of a few: the same operations one by one, which take a third of the time that as
    many calls of numpy take."""
    largest = max(logits)
    weights = []
    for logit in logits:
        x = (logit - largest) / temperature
        if x < _LOWEST:
            weights.append(0)
            continue
        k = round(x * _LOG2_E)
        r = (x - k * _LN2_HIGH) - k * _LN2_LOW
        result = _INVERSE_FACTORIALS[0]
        for factor in _INVERSE_FACTORIALS[1:]:
            result = result * r + factor
        weights.append(round(ldexp(result, k) * ONE))
    return np.array(weights, np.int64)


def _exp(x: Doubles) -> Doubles:
    """e^x for -32 <= x <= 0: `x = k ln 2 + r`, and the Taylor polynomial of r to degree 13."""
    k = np.rint(x * _LOG2_E)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    result = np.full_like(r, _INVERSE_FACTORIALS[0])
    for factor in _INVERSE_FACTORIALS[1:]:
        result *= r
        result += factor
    return np.ldexp(result, k.astype(np.int32))


def _heaviest(weights: Whole, need: int) -> Whole:
    """As many of the heaviest as make `need`, some more perhaps, by falling weight."""
    count = 1024  # sorting a few is much faster than sorting a vocabulary
    while count < len(weights):
        bound = np.partition(weights, len(weights) - count)[len(weights) - count]
        some = np.flatnonzero(weights > bound)
        if len(some) and int(weights[some].sum()) >= need:
            return some[np.argsort(-weights[some], kind="stable")]
        count *= 8
    return np.argsort(-weights, kind="stable")


def _filtered(
    weights: Whole, sampling: Sampling, total: int | None = None, bound: int = -1
) -> Mask | None:
    """Which of `weights` pass `top_p` and `min_p`; None when missing tokens might.

    total: the sum of all weights, those of missing tokens too, each of which is at most `bound`.
    """
    kept = weights > 0
    least = least_weight(sampling)
    sure = least > bound
    if sampling.top_p < 1:
        whole = int(weights.sum()) if total is None else total
        need = whole * round(sampling.top_p * 2**32) >> 32
        order = _heaviest(weights, need)
        sums = np.cumsum(weights[order])
        last = int(np.searchsorted(sums, need))
        kept[:] = False
        kept[order[: last + 1]] = True
        sure = sure or (last < len(sums) and int(weights[order[last]]) > bound)
    kept &= weights >= least
    return kept if sure else None
