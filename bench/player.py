"""Plays texts through an engine and keeps what each row gave: a token and its logits' hash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.pipelines import clear_all
from bench.texts import Text
from engine.engine import Engine
from engine.pipeline import Pipeline
from engine.request import Event, Finished, Produced, PromptRead, Request
from engine.sampler import choose, hash_row
from engine.sampling import Sampling
from engine.window import Span, Verdict, Window


@dataclass(frozen=True, slots=True)
class Row:
    """One row that yields a token: the token and the hash of the row's logits."""

    token: int
    hash: str


@dataclass(slots=True, eq=False)
class Played:
    """A text's rows so far; `read` prompt tokens are in, `reused` of them were not computed."""

    text: Text
    name: str
    rows: list[Row] = field(default_factory=list)
    read: int = 0
    reused: int = 0
    offered: int = 0
    error: str = ""


class Stage:
    """Texts that come and go on one engine, window by window."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._count = 0
        self.running: dict[str, Played] = {}

    def begin(self, text: Text, slot: int | None = None) -> Played:
        """Seats a text, in `slot` if that is said."""
        self._count += 1
        one = Played(text, str(self._count))
        one.reused = self._engine.submit(_request(one.name, text, slot)).reused
        self.running[one.name] = one
        return one

    def step(self) -> None:
        """One window."""
        self._take(self._engine.step())

    def until(self, reached: Callable[[], bool]) -> None:
        """Windows until `reached`, or nothing runs."""
        while self.running and not reached():
            self.step()

    def leave(self, one: Played) -> None:
        """Cancels a text."""
        self._take(self._engine.settle())
        self._engine.cancel(one.name)
        self.running.pop(one.name, None)

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            one = self.running[event.id]
            match event:
                case Produced(choice=choice):
                    one.rows.append(Row(choice.token, choice.row_hash or ""))
                case PromptRead(read=read):
                    one.read = read
                case Finished():
                    one.offered, one.error = event.offered, event.error
                    del self.running[event.id]


def play(
    engine: Engine, texts: Sequence[Text], *, at_once: int, slot: int | None = None
) -> list[Played]:
    """Plays `texts`, at most `at_once` together; `slot` names the seat when it is one by one."""
    stage = Stage(engine)
    played: list[Played] = []
    while len(played) < len(texts) or stage.running:
        while len(played) < len(texts) and len(stage.running) < at_once:
            played.append(stage.begin(texts[len(played)], slot))
        stage.step()
    return played


def play_until(engine: Engine, text: Text, tokens: int, slot: int) -> Played:
    """Plays a text in `slot` and cancels it once it has at least `tokens` tokens."""
    stage = Stage(engine)
    one = stage.begin(text, slot)
    stage.until(lambda: len(one.rows) >= tokens)
    stage.leave(one)
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
