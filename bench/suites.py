"""The suites of `strata check-exactness`, as data: each plays the same texts in another way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from bench.pipelines import clear_all
from bench.player import Played, Row, Stage, play, play_until, prompt_hashes
from bench.texts import Text
from engine.engine import Engine, EngineOptions
from engine.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Known:
    """What a text gave alone, token by token; `prompt_rows` has the prompt's tokens as rows."""

    text: Text
    rows: tuple[Row, ...]
    prompt_rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """What a suite saw: rows to compare with those of `known` from index `skip` on.

    `problem` says why the suite did not do what it is for; then nothing was compared.
    """

    known: Known
    rows: tuple[Row, ...]
    skip: int = 0
    problem: str = ""
    whole: bool = True
    """Whether the text was played to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What suites play. `longer` and `forked` are second turns, in the order of `firsts`:
    one goes on behind the first answer, one leaves the first prompt half-way."""

    pipeline: Pipeline
    options: EngineOptions
    firsts: tuple[Known, ...]
    longer: tuple[Known, ...]
    forked: tuple[Known, ...]
    seed: int

    def engine(self, **changes: object) -> Engine:
        """A new engine on empty slots, without drafts unless they are asked for."""
        clear_all(self.pipeline)
        return Engine(self.pipeline, replace(self.options, **{"spec": 1, **changes}))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Suite:
    """A named way to play. `needs_drafts`: left out for a model without a draft layer."""

    name: str
    meaning: str
    play: Callable[[Material], Iterator[Case]]
    needs_drafts: bool = False


def _together(material: Material, engine: Engine, knowns: Sequence[Known]) -> Iterator[Case]:
    """As many conversations at once as there are slots; the others wait for a seat."""
    texts = [known.text for known in knowns]
    played = play(engine, texts, at_once=material.pipeline.slots)
    for known, one in zip(knowns, played, strict=True):
        yield _case(known, one)


def _case(known: Known, one: Played, skip: int = 0, problem: str = "") -> Case:
    return Case(known, tuple(one.rows), skip, one.error or problem)


def _slots(material: Material) -> Iterator[Case]:
    """Every text twice, the second time in a seat that another conversation used."""
    knowns = (*material.firsts, *reversed(material.firsts))
    yield from _together(material, material.engine(), knowns)


def _drafts(material: Material) -> Iterator[Case]:
    yield from _drafted(material, material.firsts, 4, material.pipeline.slots)


def _solo_drafts(material: Material) -> Iterator[Case]:
    """The first half of the texts: many draft rows make it slow."""
    yield from _drafted(material, material.firsts[: -(-len(material.firsts) // 2)], 8, 1)


def _drafted(
    material: Material, knowns: Sequence[Known], spec: int, at_once: int
) -> Iterator[Case]:
    engine = material.engine(spec=spec, spec_min_p=0.0, window_rows=None)
    played = play(engine, [known.text for known in knowns], at_once=at_once)
    problem = "" if any(one.offered for one in played) else "no draft was made"
    for known, one in zip(knowns, played, strict=True):
        yield _case(known, one, problem=problem)


def _chunks(material: Material) -> Iterator[Case]:
    """Every prompt row, in random chunks; the tokens of these rows are the prompt's own."""
    random = Random(material.seed)
    for known in material.firsts:
        prompt = known.text.prompt
        hashes = prompt_hashes(
            material.pipeline, prompt, lambda: random.choice((1, 2, 3, 5, 16, 40))
        )
        rows = tuple(map(Row, prompt, hashes))
        yield Case(replace(known, rows=known.prompt_rows), rows)


def _prefill(material: Material) -> Iterator[Case]:
    for chunk in (7, 512):
        yield from _together(material, material.engine(chunk=chunk), material.firsts)


def _prefix(material: Material) -> Iterator[Case]:
    engine = material.engine(spec=material.options.spec)
    for index, (first, second) in enumerate(zip(material.firsts, material.longer, strict=True)):
        slot = index % material.pipeline.slots
        yield _case(first, play(engine, [first.text], at_once=1, slot=slot)[0])
        one = play(engine, [second.text], at_once=1, slot=slot)[0]
        whole = len(first.text.prompt) + len(first.rows) - 1
        problem = "" if one.reused >= whole else f"only {one.reused} of {whole} tokens were kept"
        yield _case(second, one, problem=problem)


def _checkpoint(material: Material) -> Iterator[Case]:
    engine = material.engine(spec=material.options.spec, checkpoints=8, checkpoint_every=16)
    for index, (first, second) in enumerate(zip(material.firsts, material.forked, strict=True)):
        slot = index % material.pipeline.slots
        play(engine, [replace(first.text, max_new=1)], at_once=1, slot=slot)
        one = play(engine, [second.text], at_once=1, slot=slot)[0]
        problem = "" if one.reused else "no checkpoint was used"
        yield _case(second, one, problem=problem)


def _cancelled(material: Material) -> Iterator[Case]:
    engine = material.engine(spec=material.options.spec)
    for index, known in enumerate(material.firsts):
        slot = index % material.pipeline.slots
        begun = play_until(engine, known.text, max(1, known.text.max_new // 3), slot)
        yield Case(known, tuple(begun.rows), problem=begun.error, whole=False)
        got = tuple(row.token for row in begun.rows)
        left = known.text.max_new - len(got)
        if left < 1:
            continue
        rest = replace(known.text, prompt=known.text.prompt + got, max_new=left)
        yield _case(known, play(engine, [rest], at_once=1, slot=slot)[0], skip=len(got))


def _interleave(material: Material) -> Iterator[Case]:
    """The longest prompt comes while others write, gives way, and goes on where it was; its next
    turns begin behind all that its seat holds and at a checkpoint, again beside another."""
    engine = material.engine(
        spec=material.options.spec, chunk=24, checkpoints=64, checkpoint_every=16
    )
    stage = Stage(engine)
    lengths = [len(known.text.prompt) for known in material.firsts]
    index = lengths.index(max(lengths))
    long = material.firsts[index]
    others = [known for known in material.firsts if known is not long]
    others = others[: min(2, material.pipeline.slots - 1)]
    seat = len(others)
    beside = [stage.begin(known.text, slot) for slot, known in enumerate(others)]
    stage.until(lambda: all(len(one.rows) > 2 for one in beside))
    first = stage.begin(long.text, seat)
    stage.until(lambda: first.read > 0)
    problem = "its prompt was read in one window" if first.rows else ""
    stage.leave(first)
    stage.step()
    again = stage.begin(long.text, seat)
    problem = problem if again.reused else "what it had read was lost"
    stage.until(lambda: False)
    for known, one in zip(others, beside, strict=True):
        yield _case(known, one)
    yield _case(long, again, problem=problem)
    for known in (material.longer[index], material.forked[index]):
        pairs = [(other, stage.begin(other.text, 0)) for other in others[:1]]
        turn = stage.begin(known.text, seat)
        stage.until(lambda: False)
        for other, one in pairs:
            yield _case(other, one)
        yield _case(known, turn, problem="" if turn.reused else "nothing was kept")


def _evict(material: Material) -> Iterator[Case]:
    """A second turn whose history another conversation has pushed out of its seat: read again."""
    engine = material.engine(spec=material.options.spec)
    half = -(-len(material.firsts) // 2)
    for first, second in list(zip(material.firsts, material.longer, strict=True))[:half]:
        begins = first.text.prompt[:16]
        other = min(material.firsts, key=lambda known: known.text.prompt[:16] == begins)
        for text in (replace(first.text, max_new=2), replace(other.text, max_new=2)):
            play(engine, [text], at_once=1, slot=0)
        one = play(engine, [second.text], at_once=1, slot=0)[0]
        kept = one.reused >= len(first.text.prompt)
        yield _case(second, one, problem="its history was still there" if kept else "")


SUITES: tuple[Suite, ...] = (
    Suite("slots", "several conversations in one window", _slots),
    Suite("drafts", "drafts on, in slots together", _drafts, needs_drafts=True),
    Suite("solo-drafts", "drafts on, one conversation alone", _solo_drafts, needs_drafts=True),
    Suite("chunks", "every prompt row, in random chunks", _chunks),
    Suite("prefill", "prompt windows of 7 and 512 rows beside decoding", _prefill),
    Suite("prefix", "a second turn behind all that the slot holds", _prefix),
    Suite("checkpoint", "another second turn, from a checkpoint inside the prompt", _checkpoint),
    Suite("interleave", "a long prompt beside others, which gives way and goes on", _interleave),
    Suite("evict", "a second turn whose history is read again", _evict),
    Suite("cancelled", "cancelled in mid-answer and continued", _cancelled),
)
