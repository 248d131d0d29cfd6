"""Judge a span: choose the tokens of its rows and decide how many of its drafts stay.

A draft stays when it equals the token that the model's own row before it chose. So drafts save
windows and never change text: the first row that disagrees still yields its own token.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from engine.constraints import Constraint
from engine.errors import RequestError
from engine.logits import Logits
from engine.request import Finish
from engine.sampler import Choice, choose, choose_among, report
from engine.sampling import Sampling
from engine.slots import Slot
from engine.window import Span, Verdict


class Outcome(NamedTuple):
    """What became of a span. `choices` are its new tokens, `offered` counts its drafts.

    `finish` is set when the request is over, and `error` says why when that is "error".
    """

    slot: int
    verdict: Verdict
    choices: tuple[Choice, ...] = ()
    offered: int = 0
    finish: Finish | None = None
    error: str = ""

    @property
    def accepted(self) -> int:
        """Draft tokens that stay."""
        return max(0, len(self.choices) - 1)


def judge(span: Span, logits: Logits, first: int, slot: Slot, eos_ids: Collection[int]) -> Outcome:
    """The outcome of `span`, whose rows that yield logits are those of `logits` from `first` on."""
    index, start, tokens, certain, logits_from, _ = span
    if logits_from == len(tokens):
        return Outcome(index, Verdict(len(tokens), slot.tokens[start + len(tokens)]))
    run = slot.run
    assert run is not None
    left = run.request.max_new - slot.generated
    row = first + certain - 1 - logits_from
    choices: list[Choice] = []
    finish: Finish | None = None
    error = ""
    for draft in (*tokens[certain:], None):
        token = logits.best(row) if run.plain else -1
        try:
            choice = Choice(token) if token >= 0 else _choose(logits, row, slot, choices)
        except RequestError as failure:
            finish, error = "error", failure.message
            break
        choices.append(choice)
        if choice.token in eos_ids:
            finish = "stop"
        elif len(choices) == left:
            finish = "length"
        if finish or draft != choice.token:
            break
        row += 1
    kept = certain + max(0, len(choices) - 1)
    verdict = Verdict(kept, choices[-1].token if choices else None)
    return Outcome(index, verdict, tuple(choices), len(tokens) - certain, finish, error)


def _choose(logits: Logits, row: int, slot: Slot, choices: list[Choice]) -> Choice:
    assert slot.run is not None
    request = slot.run.request
    constraint = slot.run.constraint
    token = _token(logits, row, slot, choices, request.sampling, constraint)
    if constraint:
        constraint.take(token)
    if request.logprobs is None and not request.hashes:
        return Choice(token)
    return report(logits.whole(row), token, request.logprobs, request.hashes)


def _token(
    logits: Logits,
    row: int,
    slot: Slot,
    choices: list[Choice],
    sampling: Sampling,
    constraint: Constraint | None,
) -> int:
    """The row's token, from as little of the row as says it."""
    best = logits.best(row)
    if sampling.plain and best >= 0 and (constraint is None or constraint.allows(best)):
        return best
    allowed = constraint.allowed() if constraint else None
    free = best >= 0 and allowed is None and not sampling.logit_bias
    token = logits.drawn(row) if free else None
    if token is None:
        recent = slot.tokens[-max(1, sampling.penalty_last_n) :]
        before = recent + [choice.token for choice in choices]
        position = len(slot.tokens) + len(choices)
        candidates = logits.candidates(row) if free else None
        if candidates is not None:
            token = choose_among(candidates, before, position, sampling)
        if token is None:
            token = choose(logits.whole(row), before, position, sampling, allowed)
    return token
