"""Judge a span: choose the tokens of its rows and decide how many of its drafts stay.

A draft stays when it equals the token that the model's own row before it chose. So drafts save
windows and never change text: the first row that disagrees still yields its own token.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.errors import RequestError
from engine.request import Finish
from engine.sampler import Choice, Floats, choose, report
from engine.slots import Slot
from engine.window import Span, Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
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


def judge(span: Span, logits: Floats, slot: Slot, eos_ids: Collection[int]) -> Outcome:
    """The outcome of `span`; `logits` [wanted, vocab] are those of its rows that yield some."""
    if not span.wanted:
        after = slot.tokens[span.start + len(span.tokens)]
        return Outcome(span.slot, Verdict(len(span.tokens), after))
    run = slot.run
    assert run is not None
    choices: list[Choice] = []
    finish: Finish | None = None
    error = ""
    for index in range(span.certain - 1, len(span.tokens)):
        try:
            choice = _choose(logits[index - span.logits_from], slot, choices)
        except RequestError as failure:
            finish, error = "error", failure.message
            break
        choices.append(choice)
        finish = _finish(choice.token, slot.generated + len(choices), run.request.max_new, eos_ids)
        if finish or span.tokens[index + 1 : index + 2] != (choice.token,):
            break
    kept = span.certain + max(0, len(choices) - 1)
    after_kept = choices[-1].token if choices else None
    verdict = Verdict(kept, after_kept)
    return Outcome(span.slot, verdict, tuple(choices), span.drafts, finish, error)


def _choose(row: Floats, slot: Slot, choices: list[Choice]) -> Choice:
    assert slot.run is not None
    request = slot.run.request
    recent = slot.tokens[-max(1, request.sampling.penalty_last_n) :]
    before = recent + [choice.token for choice in choices]
    position = len(slot.tokens) + len(choices)
    token = choose(row, before, position, request.sampling)
    return report(row, token, request.logprobs, request.hashes)


def _finish(token: int, generated: int, most: int, eos_ids: Collection[int]) -> Finish | None:
    if token in eos_ids:
        return "stop"
    return "length" if generated >= most else None
