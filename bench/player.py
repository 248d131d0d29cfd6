"""Plays texts through an engine and keeps what each row gave: a token and its logits' hash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.pipelines import clear_all
from bench.texts import Text
from engine.engine import Engine
from engine.pipeline import Pipeline
from engine.request import Event, Finished, Produced, Request
from engine.sampler import choose, hash_row
from engine.sampling import Sampling
from engine.window import Span, Verdict, Window


@dataclass(frozen=True, slots=True)
class Row:
    """One row that yields a token: the token and the hash of the row's logits."""

    token: int
    hash: str


@dataclass(slots=True)
class Played:
    """A text's rows so far; `reused` prompt tokens were not computed."""

    text: Text
    rows: list[Row] = field(default_factory=list)
    reused: int = 0
    offered: int = 0
    error: str = ""


def play(
    engine: Engine, texts: Sequence[Text], *, at_once: int, slot: int | None = None
) -> list[Played]:
    """Plays `texts`, at most `at_once` together; `slot` names the seat when it is one by one."""
    played = [Played(text) for text in texts]
    waiting = list(enumerate(played))
    running: set[str] = set()
    while waiting or running:
        while waiting and len(running) < at_once:
            index, one = waiting.pop(0)
            one.reused = engine.submit(_request(str(index), one.text, slot)).reused
            running.add(str(index))
        for event in engine.step():
            _take(played[int(event.id)], event)
            if isinstance(event, Finished):
                running.remove(event.id)
    return played


def play_until(engine: Engine, text: Text, tokens: int, slot: int) -> Played:
    """Plays a text in `slot` and cancels it once it has at least `tokens` tokens."""
    one = Played(text)
    one.reused = engine.submit(_request("0", text, slot)).reused
    while engine.busy and len(one.rows) < tokens:
        for event in engine.step():
            _take(one, event)
    for event in engine.settle():
        _take(one, event)
    engine.cancel("0")
    return one


def _request(name: str, text: Text, slot: int | None) -> Request:
    return Request(
        id=name,
        tokens=text.prompt,
        max_new=text.max_new,
        sampling=text.sampling,
        slot=slot,
        hashes=True,
    )


def _take(one: Played, event: Event) -> None:
    if isinstance(event, Produced):
        one.rows.append(Row(event.choice.token, event.choice.row_hash or ""))
    elif isinstance(event, Finished):
        one.offered += event.offered
        one.error = event.error


class Alone:
    """The reference: one conversation in slot 0, one row a window, straight through the pipeline.

    `hashes` holds every row's, prompts included.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        clear_all(pipeline)
        self._pipeline = pipeline
        self.tokens: list[int] = []
        self.hashes: list[str] = []

    def continue_with(self, turn: Sequence[int], max_new: int, sampling: Sampling) -> list[Row]:
        """Reads `turn` behind what is there, then writes `max_new` tokens."""
        self.tokens += turn
        end = len(self.tokens)
        rows: list[Row] = []
        while len(rows) < max_new:
            at = len(self.hashes)
            window = Window((Span(0, at, (self.tokens[at],), 1, 0),))
            logits = self._pipeline.forward(window)().whole(0)
            self.hashes.append(hash_row(logits))
            if at >= end - 1:
                token = choose(logits, self.tokens, len(self.tokens), sampling)
                self.tokens.append(token)
                rows.append(Row(token, self.hashes[-1]))
            self._pipeline.commit(window, [Verdict(1, self.tokens[at + 1])])
        return rows


def prompt_hashes(pipeline: Pipeline, prompt: Sequence[int], chunk: Callable[[], int]) -> list[str]:
    """The hash of every prompt row's logits, read in chunks of `chunk()` rows."""
    clear_all(pipeline)
    hashes: list[str] = []
    while len(hashes) < len(prompt):
        start = len(hashes)
        tokens = tuple(prompt[start : start + max(1, chunk())])
        end = start + len(tokens)
        window = Window((Span(0, start, tokens, len(tokens), 0),))
        logits = pipeline.forward(window)()
        hashes += [hash_row(logits.whole(row)) for row in range(logits.count)]
        following = prompt[end] if end < len(prompt) else None
        pipeline.commit(window, [Verdict(len(tokens), following)])
    return hashes
