"""Who of those that wait is next: short prompts, and nobody is left waiting."""

import threading
from dataclasses import dataclass
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from engine.server.waiting import next_in_line
from tests.engine.server.harness import HANG_GUARD_S, running, script


@dataclass
class Waiter:
    prompt: tuple[int, ...]
    created: float


def line(*waiters: tuple[int, float]) -> list[Waiter]:
    return [Waiter((1,) * length, created) for length, created in waiters]


def test_without_a_limit_the_first_that_came_is_next() -> None:
    assert next_in_line(line((900, 0), (3, 1)), 0, 30, 2) == 0
    assert next_in_line(line((900, 0), (3, 1)), 0, 1.5, 2) == 0


def test_the_first_short_one_is_next() -> None:
    assert next_in_line(line((900, 0), (101, 1), (100, 2), (3, 3)), 100, 30, 4) == 2
    assert next_in_line(line((900, 0), (101, 1)), 100, 30, 4) == 0


def test_a_long_one_that_waited_counts_as_short() -> None:
    assert next_in_line(line((900, 0), (3, 1)), 100, 30, 29.9) == 1
    assert next_in_line(line((900, 0), (3, 1)), 100, 30, 30) == 0


@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(0, 5)), min_size=1, max_size=60),
    st.integers(0, 100),
    st.integers(0, 20),
    st.integers(1, 4),
)
def test_nobody_is_overtaken_by_one_that_came_much_later(
    arrivals: list[tuple[int, int]], short: int, wait_s: int, each_s: int
) -> None:
    """One slot, free every `each_s`: whoever passes another came less than `wait_s` later."""
    now, coming = 0, []
    for length, pause in arrivals:
        now += pause
        coming.append(Waiter((1,) * length, now))
    queue: list[Waiter] = []
    now = 0
    while coming or queue:
        while coming and coming[0].created <= now:
            queue.append(coming.pop(0))
        if queue:
            chosen = queue.pop(next_in_line(queue, short, wait_s, now))
            passed = [waiter for waiter in queue if waiter.created < chosen.created]
            assert all(chosen.created - waiter.created < wait_s for waiter in passed)
            assert not passed or len(chosen.prompt) <= short < min(len(w.prompt) for w in passed)
        now += each_s


def test_a_short_prompt_gets_the_slot_before_a_longer_one() -> None:
    with running({"slots": 1}, admit_short_tokens=60) as run:
        asks = [script(say="first", hold=1), script(say="long", pad="x" * 200), "{}"]
        threads = []
        for number, content in enumerate(asks):
            body = {"prompt": content}
            post = partial(run.http.post, "/v1/completions", json=body)
            threads.append(threading.Thread(target=post))
            threads[-1].start()
            run.until(lambda s, n=number: len(s.bridge.running) + len(s.bridge.queue) > n)
        run.control.send("release")
        for thread in threads:
            thread.join(HANG_GUARD_S)
        orders = run.control.wait_for("bgen", 3)
        assert [line.split()[2] for line in orders] == ["r1", "r3", "r2"]
