"""Whatever is parked, restored and dropped, answers are those of the same request alone."""

from dataclasses import replace

from engine.checkpoints import Shelf
from engine.engine import Engine, EngineOptions
from engine.parking import ParkingLimits, least_parked
from engine.pipeline import Checkpoint
from engine.request import Request
from engine.sampling import Sampling
from engine.slots import find_reuse
from tests.engine.engine_driver import Answer, collect, plain_answer
from tests.engine.toy_pipeline import ToyPipeline

TURN = 3
CONTEXT = 96
OPTIONS = EngineOptions(
    turn_ids=frozenset({TURN}),
    chunk=8,
    spec=3,
    checkpoint_every=4,
    checkpoint_root=4,
    few_tokens=1,
    parking=ParkingLimits(size_bytes=4000, least_tokens=1),
)


def ask(tokens: list[int], max_new: int = 4, name: str = "r", **more: object) -> Request:
    return Request(id=name, tokens=tuple(tokens), max_new=max_new, **more)


def engine_with(slots: int = 1, free: int = 10**9, **limits: int) -> Engine:
    parking = replace(OPTIONS.parking, **limits)
    return Engine(ToyPipeline(slots, CONTEXT), replace(OPTIONS, parking=parking), free=lambda: free)


def talk(engine: Engine, tokens: list[int], max_new: int = 4) -> tuple[int, list[int]]:
    """How many tokens of a prompt were held already, and all that is held after its answer."""
    started = engine.submit(ask(tokens, max_new))
    answers: dict[str, Answer] = {}
    collect([started], answers)
    while engine.busy:
        collect(engine.step(), answers)
    assert answers["r"].tokens == plain_answer(tokens, max_new, Sampling(), ())[0]
    return started.reused, [*tokens, *answers["r"].tokens]


def counts(engine: Engine) -> tuple[int, int, int]:
    return engine.work.parked, engine.work.restored, engine.work.dropped


A, B = [1, 1, 2, 1], [2, 2, 1, 2]


def test_a_conversation_that_lost_its_slot_goes_on_where_it_was() -> None:
    engine = engine_with()
    _, first = talk(engine, A)
    _, other = talk(engine, B)
    assert counts(engine) == (1, 0, 0)
    reused, _ = talk(engine, [*first, 1])
    assert reused == len(first) - 1, "its last token was never computed"
    assert counts(engine) == (2, 1, 0)
    assert len(engine.parking) == 1
    assert talk(engine, [*other, 1])[0] == len(other) - 1


def test_the_next_turn_of_a_conversation_parks_nothing() -> None:
    engine = engine_with()
    _, first = talk(engine, [TURN, *A, TURN, *B])
    talk(engine, [*first, 1])
    talk(engine, [TURN, *A, TURN, *B, TURN, 1])
    assert counts(engine) == (0, 0, 0)


def test_a_slot_that_goes_back_a_little_parks_nothing() -> None:
    """Reading a few tokens again costs less than a copy of all that stays."""
    for same, parked in ((56, 0), (20, 1)):
        engine = engine_with()
        long = [1 + i % 2 for i in range(60)]
        talk(engine, long, max_new=1)
        reused, _ = talk(engine, [*long[:same], 2, 2, 2, 2])
        assert same - 4 <= reused <= same
        assert counts(engine) == (parked, 0, 0)


def test_a_parked_prompt_without_the_answers_thinking_goes_on_at_its_checkpoint() -> None:
    engine = engine_with()
    prompt = [TURN, *A, TURN, *B]
    talk(engine, prompt)
    talk(engine, B)
    assert talk(engine, [*prompt, 0, 0, 0])[0] == len(prompt)
    assert len(engine.parking) == 1, "B: the other is in its slot again"


def test_a_conversation_that_begins_alike_leaves_the_parked_one_where_it_is() -> None:
    engine = engine_with()
    root = [TURN, *A, 1, 1, 1, 2, 2]
    _, first = talk(engine, [*root, TURN, *B, 1, 1, 1, 1, 1, 1])
    talk(engine, [0, 0, 0])
    assert talk(engine, [*root, TURN, 0, 0])[0] >= len(root)
    assert counts(engine) == (2, 1, 0)
    talk(engine, [0, 0])
    assert talk(engine, [*first, 0])[0] == len(first) - 1


def test_another_conversation_with_the_same_beginning_gets_a_copy_of_it() -> None:
    """Also while the one that it is copied from writes."""
    for busy in (False, True):
        engine = engine_with(2, size_bytes=0)
        root = [TURN, *A, 1, 1, 1, 2, 2]
        first = [*root, TURN, *B, *B, *B]
        engine.submit(ask(first, 30, "first"))
        answers: dict[str, Answer] = {}
        for _ in range(6 if busy else 60):
            collect(engine.step(), answers)
        assert engine.busy == busy
        started = engine.submit(ask([*root, TURN, 0, 0], 5, "second"))
        assert (started.slot, started.reused) == (1, len(root))
        while engine.busy:
            collect(engine.step(), answers)
        for name, tokens, count in (("first", first, 30), ("second", [*root, TURN, 0, 0], 5)):
            assert answers[name].tokens == plain_answer(tokens, count, Sampling(), ())[0]


def test_a_longer_turn_of_a_parked_conversation_takes_its_place() -> None:
    engine = engine_with(2)
    _, first = talk(engine, A)
    engine.submit(ask([2, 2], slot=0, name="other"))
    while engine.busy:
        engine.step()
    assert len(engine.parking) == 1
    engine.submit(ask([*first, 1], slot=1, name="again"))
    while engine.busy:
        engine.step()
    assert len(engine.parking) == 0


def test_the_one_used_longest_ago_goes_first() -> None:
    # Each has 7 computed tokens: 28 bytes, and the state at its end and three checkpoints.
    engine = engine_with(conversations=2)
    held = [talk(engine, [n, n, n, n])[1] for n in (5, 6, 7, 8)]
    assert counts(engine) == (3, 0, 1)
    assert talk(engine, [*held[0], 1])[0] == 0
    assert talk(engine, [*held[2], 1])[0] == len(held[2]) - 1


def test_old_checkpoints_go_before_conversations() -> None:
    engine = engine_with(size_bytes=1200)
    prompts = [[n] * 16 for n in (5, 6, 7)]
    held = [talk(engine, prompt)[1] for prompt in prompts]
    # 76 bytes of cells, the end and four checkpoints: 576 each, 376 with two of them.
    assert counts(engine) == (2, 0, 0)
    assert engine.parking.size_bytes <= 1200
    assert [talk(engine, [*tokens, 1])[0] for tokens in held[:2]] == [len(held[0]) - 1] * 2


def test_what_is_larger_than_all_room_is_dropped_and_others_stay() -> None:
    engine = engine_with(size_bytes=400)
    _, small = talk(engine, A)
    talk(engine, [5] * 40)
    talk(engine, B)
    assert counts(engine) == (1, 0, 1)
    assert talk(engine, [*small, 1])[0] == len(small) - 1


def test_memory_of_the_machine_stays_free() -> None:
    for free, parked in ((1000, 0), (1_500, 1)):
        engine = engine_with(free=free, free_bytes=1000)
        talk(engine, A)
        talk(engine, B)
        assert counts(engine) == (parked, 0, 1 - parked)


def test_nothing_is_parked_unless_it_is_asked_for_or_when_it_is_short() -> None:
    for limits in ({"size_bytes": 0}, {"least_tokens": 8}):
        engine = engine_with(**limits)
        talk(engine, A)
        talk(engine, B)
        assert counts(engine) == (0, 0, 0)


def test_short_conversations_are_worth_parking_where_reading_is_slow() -> None:
    assert least_parked(120 << 20, fast=True) == 480
    assert least_parked(120 << 20, fast=False) == 64
    assert least_parked(100, fast=True) == 64


def test_ids_are_compared_and_not_their_hash() -> None:
    """-1 and -2 have one hash in Python, and so do tuples of them."""
    assert hash((1, -1, 2)) == hash((1, -2, 2))
    shelf = Shelf(4, [Checkpoint(1, None), Checkpoint(2, None)])
    assert find_reuse([1, -1, 2], shelf, (1, -2, 2, 5)).length == 1
    assert find_reuse([1, -1, 2], shelf, (1, -1, 2, 5)).length == 3


def test_a_read_that_gave_way_is_parked_and_goes_on() -> None:
    engine = engine_with()
    long = [1] * 40
    engine.submit(ask(long))
    engine.step()
    engine.step()
    end = engine.cancel("r")
    assert end is not None
    talk(engine, [5, 5])
    assert talk(engine, long)[0] == end.held == 8
