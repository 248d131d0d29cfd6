"""The suites of `strata check-exactness`, as data: each plays the same texts in another way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from bench.player import Played, Row, Stage, play, play_until, prompt_hashes, row_hashes
from bench.suite import Case, Known, Material, Suite
from engine.engine import Engine
from engine.parking import ParkingLimits

MOST_ROWS = 16
"""Of the windows that the suite `rows` makes; more are prompts."""


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
        yield Case(replace(known, rows=known.prompt_rows), rows, first=0)


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
    engine = material.engine(spec=material.options.spec, checkpoints=64, checkpoint_every=16)
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


def _batch(material: Material) -> Iterator[Case]:
    """They come one after another, end at different lengths, and every fourth walks away; others
    take their seats."""
    engine = material.engine(spec=material.options.spec, slot_drafts=None)
    stage = Stage(engine)
    waiting = [*material.firsts, *reversed(material.firsts)]
    begun: list[tuple[Known, Played, int]] = []
    together = 0
    while waiting or stage.running:
        if waiting and len(stage.running) < material.pipeline.slots:
            known, number = waiting.pop(0), len(begun)
            ends = max(2, known.text.max_new * (3 - number % 3) // 3)
            text = replace(known.text, max_new=ends)
            begun.append((known, stage.begin(text), ends))
        for _ in range(3):
            stage.step()
        together = max(together, len(stage.running))
        for number, (_, one, ends) in enumerate(begun):
            if number % 4 == 3 and one.name in stage.running and 2 * len(one.rows) >= ends:
                stage.leave(one)
    alone = "never were two together" if together < min(2, material.pipeline.slots) else ""
    for number, (known, one, ends) in enumerate(begun):
        short = f"{len(one.rows)} rows instead of {ends}" if len(one.rows) < ends else ""
        problem = one.error or alone or ("" if number % 4 == 3 else short)
        yield Case(known, tuple(one.rows), problem=problem, whole=False)


def _parking(material: Material) -> Iterator[Case]:
    """Conversations that another pushed out of their seat go on in another one: behind all that
    they held, and at a checkpoint."""
    room = ParkingLimits(size_bytes=1 << 62, least_tokens=1)
    engine = material.engine(
        spec=material.options.spec, checkpoints=64, checkpoint_every=16, parking=room
    )
    half = -(-len(material.firsts) // 2)
    turns = list(zip(material.firsts, material.longer, material.forked, strict=True))
    for first, longer, forked in turns[:half]:
        other = _unlike(material, first)
        yield _case(first, play(engine, [first.text], at_once=1, slot=0)[0])
        for second, seat in ((longer, material.pipeline.slots - 1), (forked, 0)):
            for slot in range(material.pipeline.slots):
                play(engine, [replace(other.text, max_new=2)], at_once=1, slot=slot)
            before = engine.work.restored
            one = play(engine, [second.text], at_once=1, slot=seat)[0]
            restored = engine.work.restored > before and one.reused > 0
            yield _case(second, one, problem="" if restored else "nothing was restored")


def _rows(material: Material) -> Iterator[Case]:
    """Windows of every number of rows, of one slot or several: certain ones, drafts that stay and
    drafts that are dropped."""
    slots = material.pipeline.slots
    for begin in range(0, len(material.firsts), slots):
        knowns = material.firsts[begin : begin + slots]
        texts = [(*known.text.prompt, *(row.token for row in known.rows[:-1])) for known in knowns]
        played = row_hashes(
            material.pipeline, texts, MOST_ROWS, material.drafts, Random(material.seed)
        )
        for known, text, hashes in zip(knowns, texts, played, strict=True):
            alone = (*known.prompt_rows, *known.rows[1:])
            expected = tuple(Row(token, row.hash) for token, row in zip(text, alone, strict=True))
            rows = tuple(map(Row, text, hashes))
            yield Case(replace(known, rows=expected), rows, first=0)


def _residency(material: Material) -> Iterator[Case]:
    """Every text again after others have brought their own experts onto the card."""
    assert material.experts is not None
    engine = material.engine(spec=material.options.spec)
    for known in material.firsts:
        _, before = material.experts()
        play(engine, [_unlike(material, known).text], at_once=1)
        one = play(engine, [known.text], at_once=1)[0]
        _, after = material.experts()
        yield _case(known, one, problem="" if after > before else "no expert came from elsewhere")


def _unlike(material: Material, known: Known) -> Known:
    """A text that begins otherwise, if there is one."""
    begins = known.text.prompt[:16]
    return min(material.firsts, key=lambda other: other.text.prompt[:16] == begins)


def _evict(material: Material) -> Iterator[Case]:
    """A second turn whose history another conversation has pushed out of its seat: read again."""
    engine = material.engine(spec=material.options.spec)
    half = -(-len(material.firsts) // 2)
    for first, second in list(zip(material.firsts, material.longer, strict=True))[:half]:
        other = _unlike(material, first)
        for text in (replace(first.text, max_new=2), replace(other.text, max_new=2)):
            play(engine, [text], at_once=1, slot=0)
        one = play(engine, [second.text], at_once=1, slot=0)[0]
        kept = one.reused >= len(first.text.prompt)
        yield _case(second, one, problem="its history was still there" if kept else "")


SUITES: tuple[Suite, ...] = (
    Suite("slots", "several conversations in one window", _slots),
    Suite("batch", "they come and go, end early and walk away", _batch),
    Suite("rows", f"windows of 1 to {MOST_ROWS} rows, some of them dropped", _rows),
    Suite("drafts", "drafts on, in slots together", _drafts, needs_drafts=True),
    Suite("solo-drafts", "drafts on, one conversation alone", _solo_drafts, needs_drafts=True),
    Suite("chunks", "every prompt row, in random chunks", _chunks),
    Suite("prefill", "prompt windows of 7 and 512 rows beside decoding", _prefill),
    Suite("prefix", "a second turn behind all that the slot holds", _prefix),
    Suite("checkpoint", "another second turn, from a checkpoint inside the prompt", _checkpoint),
    Suite("interleave", "a long prompt beside others, which gives way and goes on", _interleave),
    Suite("parking", "second turns of conversations that were kept in memory", _parking),
    Suite("residency", "experts change places between two answers", _residency, needs_experts=True),
    Suite("evict", "a second turn whose history is read again", _evict),
    Suite("cancelled", "cancelled in mid-answer and continued", _cancelled),
)
