"""Who of those that wait is next: short prompts, and nobody is left waiting."""

import threading
from dataclasses import dataclass
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from engine.server.waiting import gives_way, next_in_line
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


@dataclass
class Reader:
    prompt: tuple[int, ...]
    read: int = 0
    gave_way: int = 0


def test_the_read_with_most_left_gives_way_to_one_under_half_as_long() -> None:
    some, most = Reader((1,) * 900, read=500), Reader((1,) * 800, read=100)
    assert gives_way([some, most], (1,) * 100, 64) is most
    assert gives_way([some, most], (1,) * 349, 64) is most
    assert gives_way([some, most], (1,) * 350, 64) is None
    assert gives_way([], (1,), 64) is None


def test_a_read_gives_way_twice_and_not_in_its_last_window() -> None:
    assert gives_way([Reader((1,) * 900, gave_way=2)], (1,), 64) is None
    assert gives_way([Reader((1,) * 900, gave_way=1)], (1,), 64) is not None
    assert gives_way([Reader((1,) * 900, read=836)], (1,), 64) is None


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


PARKS = {"slots": 1, "facts": {"conversation_cache_mib": 64, "prefill": 64}}


def test_a_long_read_gives_its_slot_to_a_short_prompt_and_goes_on() -> None:
    long, short = script(say="long", hold_read=0) + "." * 600, script(say="short")
    with running(PARKS) as run:
        answers: dict[str, str] = {}

        def ask(name: str, content: str) -> None:
            answers[name] = run.chat(content).json()["choices"][0]["message"]["content"]

        first = threading.Thread(target=ask, args=("long", long))
        first.start()
        run.control.wait_for("bgen")
        second = threading.Thread(target=ask, args=("short", short))
        second.start()
        assert run.control.wait_for("byield") == ["byield 0 r1"]
        second.join(HANG_GUARD_S)
        assert [line.split()[2] for line in run.control.wait_for("bgen", 3)] == ["r1", "r2", "r1"]
        run.control.send("release")
        first.join(HANG_GUARD_S)
        assert answers == {"long": "long", "short": "short"}
        page = run.http.get("/metrics?format=prometheus").text
        assert 'vllm:num_preemptions_total{model_name="strata"} 1' in page


def test_without_parking_no_read_gives_its_slot_away() -> None:
    long, short = script(say="long", hold_read=0) + "." * 600, script(say="short")
    with running({"slots": 1, "facts": {"prefill": 64}}) as run:
        clients = [threading.Thread(target=run.chat, args=(text,)) for text in (long, short)]
        clients[0].start()
        run.control.wait_for("bgen")
        clients[1].start()
        run.until(lambda s: len(s.bridge.queue) == 1)
        run.control.send("release")
        for client in clients:
            client.join(HANG_GUARD_S)
        assert not run.control.starting("byield")


def test_a_client_that_leaves_while_its_read_gives_way_is_gone() -> None:
    body = {"prompt": script(say="long", hold_read=0) + "." * 600, "stream": True}
    with running(PARKS) as run:
        with run.http.stream("POST", "/v1/completions", json=body):
            run.control.wait_for("bgen")
            other = threading.Thread(target=run.chat, args=(script(say="short"),))
            other.start()
            run.control.wait_for("byield")
        other.join(HANG_GUARD_S)
        run.until(lambda s: not s.bridge.running and not s.bridge.queue)
        assert run.chat("x").status_code == 200
