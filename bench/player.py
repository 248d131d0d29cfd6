"""Plays texts through an engine and keeps what each row gave: a token and its logits' hash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from random import Random

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


def row_hashes(
    pipeline: Pipeline, texts: Sequence[Sequence[int]], most: int, drafts: int, random: Random
) -> list[list[str]]:
    """The hashes of every row's logits of `texts`, one a slot, in windows of 1 to `most` rows.

    A span has certain rows and at most `drafts` draft rows; those from the first wrong one on are
    dropped. Spans and wrong tokens are chosen at random.
    """
    clear_all(pipeline)
    hashes: list[list[str]] = [[] for _ in texts]
    for rows in cycle(range(1, most + 1)):
        open_ = [slot for slot, text in enumerate(texts) if len(hashes[slot]) < len(text)]
        if not open_:
            return hashes
        shares = dict.fromkeys(random.sample(open_, min(len(open_), rows)), 0)
        for _ in range(rows):
            able = [s for s in shares if len(hashes[s]) + shares[s] < len(texts[s])]
            if able:
                fewest = min(able, key=lambda s: (shares[s] > 0, random.random()))
                shares[fewest] += 1
        spans = [
            _random_span(slot, len(hashes[slot]), texts[slot], count, drafts, pipeline, random)
            for slot, count in shares.items()
        ]
        window = Window(tuple(span for span, _ in spans))
        logits = pipeline.forward(window)()
        first = 0
        for span, verdict in spans:
            kept = range(first, first + verdict.kept)
            hashes[span.slot] += [hash_row(logits.whole(row)) for row in kept]
            first += len(span.tokens)
        pipeline.commit(window, [verdict for _, verdict in spans])
    raise AssertionError("a cycle has no end")


def _random_span(
    slot: int,
    start: int,
    text: Sequence[int],
    rows: int,
    drafts: int,
    pipeline: Pipeline,
    random: Random,
) -> tuple[Span, Verdict]:
    """Rows of a text from `start` on; perhaps the last drafts are wrong."""
    tokens = list(text[start : start + rows])
    certain = random.randint(max(1, rows - drafts), rows)
    kept = random.randint(certain, rows)
    for row in range(kept, rows):
        tokens[row] = (tokens[row] + 1) % pipeline.vocab_size
    following = text[start + kept] if start + kept < len(text) else None
    return Span(slot, start, tuple(tokens), certain, 0), Verdict(kept, following)
