"""Run requests through an engine, and what a model with no engine says to the same request."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from engine.engine import Engine
from engine.request import Event, Finished, Produced, Request
from engine.sampler import choose, hash_row
from engine.sampling import Sampling
from tests.engine.toy_pipeline import toy_logits


@dataclass
class Answer:
    """What an engine said about one request."""

    tokens: list[int] = field(default_factory=list)
    hashes: list[str | None] = field(default_factory=list)
    end: Finished | None = None


def collect(events: Sequence[Event], answers: dict[str, Answer]) -> None:
    """Add events to the answers they belong to; nothing may follow an end."""
    for event in events:
        answer = answers.setdefault(event.id, Answer())
        assert answer.end is None
        match event:
            case Produced():
                answer.tokens.append(event.choice.token)
                answer.hashes.append(event.choice.row_hash)
            case Finished():
                answer.end = event


def run(engine: Engine, *requests: Request) -> dict[str, Answer]:
    """Submit all requests at once and step until the engine is idle."""
    answers: dict[str, Answer] = {}
    for request in requests:
        collect([engine.submit(request)], answers)
    while engine.busy:
        collect(engine.step(), answers)
    return answers


def plain_answer(
    prompt: Sequence[int], max_new: int, sampling: Sampling, eos_ids: Collection[int]
) -> tuple[list[int], list[str]]:
    """Tokens and row hashes by the definition: one row after another, nothing cached."""
    tokens, hashes = list(prompt), []
    while len(hashes) < max_new:
        row = toy_logits(tokens)
        tokens.append(choose(row, tokens, len(tokens), sampling))
        hashes.append(hash_row(row))
        if tokens[-1] in eos_ids:
            break
    return tokens[len(prompt) :], hashes
