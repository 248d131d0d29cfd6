"""The engine process over its pipes, with the toy model in a child process."""

from collections.abc import Callable, Iterator

import pytest

from engine.messages import (
    Admitted,
    BatchGen,
    BatchStop,
    BatchYield,
    Done,
    Event,
    Failed,
    Gen,
    Info,
    Keys,
    LogProbs,
    PromptRead,
    Quit,
    Ready,
    Resume,
    Reused,
    RowHash,
    SlotDone,
    SlotToken,
    Stop,
    Token,
    Yielded,
)
from engine.sampling import Sampling
from tests.engine.engine_child import PATIENCE_S, Child
from tests.engine.engine_driver import plain_answer
from tests.engine.toy_engine import CONTEXT, EOS, TURN
from tests.engine.toy_pipeline import VOCAB


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child().started()
    yield child
    child.process.kill()
    child.close()


def ends(rid: str) -> Callable[[Event], bool]:
    """Fits the last line about a request that goes through a slot."""

    def fits(event: Event) -> bool:
        over = isinstance(event, SlotDone | Failed)
        over = over or (isinstance(event, Admitted) and not event.goes_on)
        return over and event.rid == rid

    return fits


def said_about(events: list[Event], rid: str) -> list[Event]:
    return [event for event in events if getattr(event, "rid", "") == rid]


def tokens_of(events: list[Event]) -> list[int]:
    return [event.id for event in events if isinstance(event, Token | SlotToken)]


def expected(prompt: list[int], max_new: int) -> list[int]:
    return plain_answer(prompt, max_new, Sampling(), ())[0]


def test_it_starts_with_its_facts() -> None:
    child = Child()
    info, ready = child.next(), child.next()
    assert isinstance(info, Info)
    assert {"batch_slots": 2, "slot_cache": 1, "logprobs": 20, "model": "toy"}.items() <= (
        info.values.items()
    )
    assert ready == Ready(CONTEXT)
    events, log, code = child.close()
    assert (events, log, code) == ([], "", 0)


def test_a_request_in_a_slot_line_by_line(child: Child) -> None:
    prompt = [1, 2, TURN, *[4] * 9]
    child.say(BatchGen(1, 6, tuple(prompt), rid="x.1"))
    events = child.hear(ends("x.1"))
    assert all(event.rid == "x.1" for event in events)
    answer = expected(prompt, 6)
    kinds = [type(event) for event in events]
    assert kinds == [
        Resume, PromptRead, PromptRead, PromptRead, Reused, Token, Done, Admitted,
        *[SlotToken] * (len(answer) - 1), SlotDone,
    ]  # fmt: skip
    assert [event.read_to for event in events if isinstance(event, PromptRead)] == [2, 10, 12]
    assert tokens_of(events) == answer
    done, end = events[6], events[-1]
    assert (done.generated, done.prompt_tokens, done.finish) == (1, 12, "length")
    assert events[7] == Admitted(1, True, "x.1")
    assert (end.slot, end.generated, end.finish) == (1, len(answer), "length")


def test_requests_side_by_side_get_what_they_get_alone(child: Child) -> None:
    prompts = {"a": [1, 2, 4], "b": list(range(40))}
    child.say(*(BatchGen(s, 20, tuple(prompts[rid]), rid=rid) for s, rid in enumerate("ab")))
    events = child.hear(ends("a")) + child.hear(ends("b"))
    for rid, prompt in prompts.items():
        assert tokens_of(said_about(events, rid)) == expected(prompt, 20)


def test_a_request_without_a_slot_or_a_rid(child: Child) -> None:
    child.say(Gen(5, (1, 2, 4)))
    events = child.hear(lambda event: isinstance(event, Done))
    assert tokens_of(events) == expected([1, 2, 4], 5)
    assert events[-1].generated == 5
    child.say(Gen(5, (1, 2, 4, *tokens_of(events), 6), rid="again"))
    assert child.next() == Resume(7, "again")


def test_idle_it_tells_where_experts_were_found() -> None:
    child = Child("experts").started()
    child.say(Gen(5, (1, 2, 4)))
    counts = child.hear(lambda event: isinstance(event, Info))[-1]
    assert isinstance(counts, Info)
    assert counts.values["expert_hits"] == 3 * counts.values["expert_fetches"] > 0
    child.close()


def test_a_single_token_ends_with_the_admission(child: Child) -> None:
    child.say(BatchGen(0, 1, (1, 2), rid="one"))
    events = child.hear(ends("one"))
    assert isinstance(events[-2], Done)
    assert (events[-2].finish, events[-2].generated) == ("length", 1)
    assert events[-1] == Admitted(0, False, "one")


def test_an_end_token_at_once_ends_with_the_admission() -> None:
    child = Child("ends").started()
    first = next(i for i in range(VOCAB) if expected([i], 1) == [EOS])
    child.say(BatchGen(0, 9, (first,), rid="one"))
    events = child.hear(ends("one"))
    assert tokens_of(events) == [EOS]
    assert (events[-2].finish, events[-1]) == ("stop", Admitted(0, False, "one"))
    assert child.close()[0] == []


def test_reports_come_before_their_tokens(child: Child) -> None:
    child.say(BatchGen(0, 4, (1, 2), Keys(logprobs=2, hashes=True), rid="r"))
    events = child.hear(ends("r"))
    places = [i for i, event in enumerate(events) if isinstance(event, Token | SlotToken)]
    hashes = plain_answer([1, 2], 4, Sampling(), ())[1]
    assert len(places) == 4
    for place, row_hash in zip(places, hashes, strict=True):
        report, hash_line, token = events[place - 2 : place + 1]
        assert isinstance(report, LogProbs)
        assert report.others[0] == (token.id, report.logprob)
        assert hash_line == RowHash(row_hash, "r")


def test_a_stopped_slot_says_cancel_and_keeps_what_it_holds() -> None:
    child = Child(gated=True).started()
    child.say(BatchGen(0, 300, (1, 2), rid="r"))
    events = child.step_until(lambda event: isinstance(event, SlotToken))
    child.say(BatchStop(0, "other"), BatchStop(0, "r"))
    events += child.step_until(ends("r"))
    answer = tokens_of(events)
    assert (events[-1].finish, events[-1].generated) == ("cancel", len(answer))
    assert 2 <= len(answer) < 300
    assert answer == expected([1, 2], len(answer))
    child.say(BatchStop(0, "r"), BatchStop(0), BatchStop(99))
    child.say(BatchGen(0, 1, (1, 2, *answer, 1), rid="next"))
    assert child.next() == Resume(1 + len(answer), "next")
    assert child.close()[2] == 0


def test_a_read_gives_way_at_its_next_chunk_and_goes_on() -> None:
    child = Child(gated=True).started()
    prompt = tuple(i % 50 for i in range(390))
    child.say(BatchGen(0, 5, prompt, rid="r"))
    child.step_until(lambda event: isinstance(event, PromptRead) and event.read_to > TURN)
    child.say(BatchYield(0, "other"), BatchYield(1), BatchYield(0, "r"))
    given, done, admitted = child.step_until(ends("r"))[-3:]
    assert isinstance(given, Yielded)
    assert TURN < given.tokens < 390
    assert (done.generated, done.finish, done.prompt_read) == (0, "cancel", given.tokens)
    assert admitted == Admitted(0, False, "r")
    child.say(BatchYield(0), BatchGen(0, 5, prompt, rid="r"))
    assert child.next() == Resume(given.tokens, "r")
    events, _, code = child.close()
    assert (tokens_of(events), code) == (expected(list(prompt), 5), 0)


def test_stop_ends_a_request_without_a_slot_and_no_writing_slot() -> None:
    child = Child(gated=True).started()
    child.say(BatchGen(0, 390, (1, 2), rid="slot"))
    child.step_until(lambda event: isinstance(event, SlotToken))
    child.say(Gen(390, (4,), rid="gen"))
    child.step_until(lambda event: isinstance(event, Token) and event.rid == "gen")
    child.say(Stop())
    events = child.step_until(lambda event: isinstance(event, Done) and event.rid == "gen")
    assert events[-1].finish == "cancel"
    events, _, code = child.close()
    assert (events[-1].rid, events[-1].finish, code) == ("slot", "length", 0)


def test_stop_ends_a_read() -> None:
    child = Child(gated=True).started()
    child.say(BatchGen(0, 5, tuple(i % 50 for i in range(390)), rid="r"))
    child.step_until(lambda event: isinstance(event, PromptRead))
    child.say(Stop())
    events = child.step_until(ends("r"))
    assert isinstance(events[-2], Done)
    assert (events[-2].finish, events[-1]) == ("cancel", Admitted(0, False, "r"))
    assert child.close()[0] == []


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("", "expected: GEN"),
        ("HELLO rid=q", "expected: GEN"),
        ("BGEN 0 5 1,x rid=q", "BGEN: expected"),
        ("BGEN 0 0 1,2 rid=q", "max_new is 0"),
        ("BGEN 0 5 top_p=2 1,2 rid=q", "top_p"),
        ("BGEN 2 5 1,2 rid=q", "slot is 2, allowed is 0 to 1"),
        ("BGEN 0 5 1,61 rid=q", "token id 61 is not in the vocabulary of 61"),
        ("BGEN 0 399 1,2 rid=q", "more than the context of 400 tokens"),
        ("BGEN 0 5 logprobs=21 1,2 rid=q", "logprobs is 21"),
        ("BSTOP x rid=q", "BSTOP"),
        ("\udcff\udcfe rid=q", "expected: GEN"),
    ],
)
def test_a_bad_line_is_answered_and_survived(child: Child, line: str, answer: str) -> None:
    assert child.process.stdin is not None
    child.process.stdin.write(line.encode("utf-8", "surrogateescape") + b"\r\n")
    child.process.stdin.flush()
    failed = child.hear(lambda event: isinstance(event, Failed))[-1]
    assert answer in failed.message
    assert failed.rid == ("q" if "rid=q" in line else "")
    child.say(BatchGen(0, 3, (1, 2), rid="after"))
    assert tokens_of(child.hear(ends("after"))) == expected([1, 2], 3)


def test_a_busy_slot_is_refused_and_goes_on() -> None:
    child = Child(gated=True).started()
    child.say(BatchGen(0, 50, (1, 2), rid="a"), BatchGen(0, 5, (1,), rid="b"))
    events, _, _ = child.close()
    assert [type(event) for event in said_about(events, "b")] == [Failed]
    assert tokens_of(said_about(events, "a")) == expected([1, 2], 50)


def test_logits_that_are_not_numbers_end_their_request_only() -> None:
    child = Child("nan").started()
    child.say(BatchGen(0, 5, (1, 59), rid="bad"), BatchGen(1, 5, (1, 2), rid="good"))
    events, _, code = child.close()
    assert code == 0
    failed = said_about(events, "bad")[-1]
    assert failed == Failed("the logit of token 0 at position 2 is nan", "bad")
    assert tokens_of(said_about(events, "good")) == expected([1, 2], 5)


def test_a_closed_stdin_ends_it_after_what_runs() -> None:
    child = Child().started()
    child.write("BGEN 0 5 1,2 rid=a\nGEN 5 4,5 rid=b")
    events, log, code = child.close()
    assert code == 0
    assert tokens_of(said_about(events, "a")) == expected([1, 2], 5)
    assert tokens_of(said_about(events, "b")) == expected([4, 5], 5)
    assert "a stray line" in log


def test_quit_ends_it_while_slots_write() -> None:
    child = Child(gated=True).started()
    child.say(BatchGen(0, 300, (1, 2), rid="r"))
    child.step_until(lambda event: isinstance(event, SlotToken))
    child.say(Quit())
    # The window that waits at the gate never runs.
    assert child.process.wait(PATIENCE_S) == 0
    assert not any(ends("r")(event) for event in child.close()[0])


def test_quit_ends_it_while_a_window_hangs() -> None:
    child = Child("slow").started()
    child.say(BatchGen(0, 5, (60,), rid="r"), Quit())
    assert child.process.wait(30) == 0
    child.close()


def test_a_reader_that_has_gone_ends_it() -> None:
    child = Child().started()
    assert child.process.stdout is not None
    child.process.stdout.close()
    child.say(BatchGen(0, 300, (1, 2), rid="r"))
    assert child.process.wait(PATIENCE_S) == 1
    child.process.stdout = None
    assert "nobody reads" in child.close()[1]
