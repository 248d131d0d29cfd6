"""Clients of one engine whose memory comes and goes: every answer is that of the request alone."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.engine import Engine
from engine.parking import ParkingLimits
from engine.pipeline import Cells
from engine.request import Request
from engine.sampling import Sampling
from tests.engine.engine_driver import Answer, collect, plain_answer, run
from tests.engine.test_parking import CONTEXT, OPTIONS, TURN, A, B, ask, talk
from tests.engine.toy_pipeline import ToyPipeline


class Conversations(RuleBasedStateMachine):
    """Clients of one engine: they begin, go on, fork, walk away; memory comes and goes."""

    @initialize(
        slots=st.integers(1, 3),
        size_bytes=st.sampled_from([500, 1200, 4000]),
        conversations=st.integers(0, 3),
        checkpoints=st.integers(0, 5),
        runs_ahead=st.booleans(),
        spec=st.integers(1, 4),
    )
    def start(self, checkpoints: int, runs_ahead: bool, spec: int, **sizes: int) -> None:
        self.limits = ParkingLimits(
            size_bytes=sizes["size_bytes"],
            conversations=sizes["conversations"],
            free_bytes=1000,
            least_tokens=3,
        )
        options = replace(
            OPTIONS, checkpoints=checkpoints, spec=spec, few_tokens=3, parking=self.limits
        )
        self.free = 10**6
        pipeline = ToyPipeline(sizes["slots"], CONTEXT, runs_ahead=runs_ahead)
        self.engine = Engine(pipeline, options, free=lambda: self.free)
        self.asked: dict[str, Request] = {}
        self.answers: dict[str, Answer] = {}
        self.histories: list[list[int]] = [[1, 2, TURN, 1, 1, TURN], [1, 2, TURN, 2], [], [2]]

    @rule(
        turns=st.lists(
            st.tuples(
                st.integers(0, 3),
                st.sampled_from([0.4, 0.8, 1.0, 1.0, 1.0]),
                st.lists(st.integers(0, TURN), min_size=1, max_size=6),
                st.integers(1, 9),
                st.booleans(),
                st.integers(0, 4),
            ),
            min_size=4,
            max_size=9,
        )
    )
    def talk(self, turns: list[tuple[int, float, list[int], int, bool, int]]) -> None:
        for client, keep, new, max_new, warm, windows in turns:
            while all(slot.run for slot in self.engine.slots):
                self.tell(self.engine.step())
            history = self.histories[client]
            prompt = [*history[: round(keep * len(history))], *new][-CONTEXT // 2 :]
            free = [one.index for one in self.engine.slots if one.run is None]
            request = ask(
                prompt,
                max_new,
                f"{len(self.asked)} {client}",
                sampling=Sampling(temperature=0.9, seed=7) if warm else Sampling(),
                slot=free[0] if windows == 0 else None,
                hashes=True,
            )
            self.asked[request.id] = request
            collect([self.engine.submit(request)], self.answers)
            for _ in range(windows):
                self.tell(self.engine.step())

    @rule(windows=st.integers(1, 6))
    def step(self, windows: int) -> None:
        for _ in range(windows):
            self.tell(self.engine.step())

    @rule(which=st.integers(0, 2))
    def walk_away(self, which: int) -> None:
        self.tell(self.engine.settle())
        running = [slot.run.request.id for slot in self.engine.slots if slot.run]
        if running and (end := self.engine.cancel(running[which % len(running)])):
            self.tell([end])

    @rule(free=st.sampled_from([0, 1300, 10**6]))
    def memory(self, free: int) -> None:
        self.free = free

    def tell(self, events: list[object]) -> None:
        collect(events, self.answers)  # type: ignore[arg-type]
        for event in events:
            answer = self.answers[event.id]  # type: ignore[attr-defined]
            if answer.end and event is answer.end:
                client = int(answer.end.id.split()[1])
                self.histories[client] = [*self.asked[answer.end.id].tokens, *answer.tokens]

    @precondition(lambda self: hasattr(self, "engine"))
    @invariant()
    def room(self) -> None:
        parking = self.engine.parking
        assert parking.size_bytes <= self.limits.size_bytes
        assert not self.limits.conversations or len(parking) <= self.limits.conversations
        work = self.engine.work
        assert len(parking) <= work.parked

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        while self.engine.busy:
            self.tell(self.engine.step())
        for name, request in self.asked.items():
            answer = self.answers[name]
            tokens, hashes = plain_answer(request.tokens, request.max_new, request.sampling, ())
            assert answer.end is not None
            count = len(answer.tokens) if answer.end.finish == "cancel" else len(tokens)
            assert answer.tokens == tokens[:count]
            assert answer.hashes == hashes[:count]


Conversations.TestCase.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
TestConversations = Conversations.TestCase


def test_a_pipeline_that_puts_back_too_little_is_found() -> None:
    class Forgetful(ToyPipeline):
        def put_in(self, slot: int, cells: Cells, length: int) -> None:
            owner, tokens = cells.state
            super().put_in(slot, Cells(cells.length, (owner, (0, *tokens[1:]))), length)

    engine = Engine(Forgetful(1, CONTEXT), OPTIONS)
    _, first = talk(engine, A)
    talk(engine, B)
    with pytest.raises(AssertionError, match="overwritten"):
        run(engine, ask([*first, 1]))
