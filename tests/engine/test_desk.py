"""The desk of an engine whose windows run ahead: all that a request gave is told before its end."""

from itertools import count

import pytest

from engine import messages
from engine.desk import Desk
from engine.engine import Engine, EngineOptions
from engine.messages import (
    BatchGen,
    BatchStop,
    BatchYield,
    Gen,
    Resume,
    SlotDone,
    SlotToken,
    Stop,
    Yielded,
)
from engine.parking import ParkingLimits
from engine.sampling import Sampling
from tests.engine.engine_driver import plain_answer
from tests.engine.toy_pipeline import ToyPipeline

PROMPT = tuple(range(1, 30))


def desk_of(heard: list[messages.Event]) -> tuple[Desk, Engine]:
    pipeline = ToyPipeline(slots=2, max_context=400, runs_ahead=True)
    engine = Engine(
        pipeline,
        EngineOptions(
            chunk=8, spec=3, few_tokens=8, parking=ParkingLimits(size_bytes=10**5, least_tokens=8)
        ),
    )
    return Desk(engine, heard.append, count().__next__), engine


@pytest.mark.parametrize("steps", range(4, 9))
def test_a_stop_tells_the_window_under_way_first(steps: int) -> None:
    heard: list[messages.Event] = []
    desk, engine = desk_of(heard)
    desk.handle(BatchGen(0, 100, PROMPT, rid="a"))
    desk.handle(BatchGen(1, 100, PROMPT[::-1], rid="b"))
    for _ in range(steps):
        desk.tell(engine.step())
    desk.handle(BatchStop(0))
    of_a = [event for event in heard if getattr(event, "rid", "a") == "a"]
    told = [event.id for event in of_a if isinstance(event, messages.Token | SlotToken)]
    assert told == plain_answer(PROMPT, len(told), Sampling(), ())[0]
    if told:
        assert isinstance(of_a[-1], SlotDone)
        assert of_a[-1].generated == len(told)
    assert engine.slots[0].run is None
    assert engine.slots[1].run is not None
    while engine.busy:
        desk.tell(engine.step())
    of_b = [event for event in heard if getattr(event, "rid", "b") == "b"]
    told = [event.id for event in of_b if isinstance(event, messages.Token | SlotToken)]
    assert told == plain_answer(PROMPT[::-1], 100, Sampling(), ())[0]


def test_a_read_gives_way_where_the_window_under_way_ends() -> None:
    heard: list[messages.Event] = []
    desk, engine = desk_of(heard)
    desk.handle(BatchGen(0, 5, PROMPT, rid="a"))
    desk.tell(engine.step())
    desk.handle(BatchYield(0))
    given = next(event for event in heard if isinstance(event, Yielded))
    assert given.tokens == 16
    desk.handle(Gen(4, PROMPT, rid="g"))
    desk.handle(Stop())
    assert not engine.busy


def test_what_was_read_before_another_took_its_slot_is_not_read_again() -> None:
    heard: list[messages.Event] = []
    desk, engine = desk_of(heard)
    desk.handle(BatchGen(0, 5, PROMPT, rid="a"))
    desk.handle(BatchGen(1, 50, PROMPT[:9], rid="busy"))
    for _ in range(3):
        desk.tell(engine.step())
    desk.handle(BatchYield(0, "a"))
    given = next(event for event in heard if isinstance(event, Yielded))
    desk.handle(BatchGen(0, 3, (5, 6), rid="short"))
    while engine.busy:
        desk.tell(engine.step())
    heard.clear()
    desk.handle(BatchGen(1, 5, PROMPT, rid="a"))
    while engine.busy:
        desk.tell(engine.step())
    assert heard[0] == Resume(given.tokens, "a")
    assert given.tokens >= 8
    told = [event.id for event in heard if isinstance(event, messages.Token | SlotToken)]
    assert told == plain_answer(PROMPT, 5, Sampling(), ())[0]
