"""The sentence in the engine's log about what its windows did."""

from engine.speculative import Outcome
from engine.window import Span, Verdict, Window
from engine.work import EVERY_S, Work, WorkLog


def test_counts_since_the_last_sentence() -> None:
    now = [0.0]
    experts = [(0, 0)]
    work = Work()
    log = WorkLog(work, lambda: now[0], lambda: experts[0])
    assert not log.due(idle=True)
    window = Window((Span(0, 4, (1, 2, 3), 1, 0), Span(1, 9, (5,), 1, 0)))
    outcomes = [Outcome(0, Verdict(2, 7), offered=2), Outcome(1, Verdict(1, 6))]
    work.add(window, outcomes)
    assert log.due(idle=True)
    assert not log.due(idle=False)
    assert log.tell()[0] == "", "too short a time"
    for _ in range(4):
        work.add(window, outcomes)
        work.run_s += 0.004
        work.choose_s += 0.001
        work.commit_s += 0.002
    now[0] += EVERY_S
    experts[0] = 30, 10
    assert log.due(idle=False)
    sentence, counts = log.tell()
    assert counts == {"expert_hits": 30, "expert_fetches": 10}
    assert sentence == (
        "strata batch: 4 windows of 4.0 rows, 2500.00 ms each (run 4.00, choose 1.00, commit 2.00,"
        " draft 0.00), 1.6 rows/s, experts 75.0% in VRAM, 2.5 a window by wire, drafts 0 of 8 kept"
    )
    assert not log.due(idle=True)


def test_without_experts_elsewhere() -> None:
    now = [5.0]
    work = Work()
    log = WorkLog(work, lambda: now[0])
    work.add(Window((Span(0, 0, (1, 2), 2, 1),)), [Outcome(0, Verdict(2, 3))])
    now[0] += 50.0
    log.wakes()
    now[0] += 2.0
    sentence, counts = log.tell()
    assert sentence.endswith("1.0 rows/s")
    assert not counts


def test_conversations_that_lost_their_slot_are_told_once_there_are_any() -> None:
    now = [0.0]
    work = Work(parked=2)
    log = WorkLog(work, lambda: now[0])
    window = Window((Span(0, 0, (1, 2), 2, 1),))
    work.add(window, [Outcome(0, Verdict(2, 3))])
    work.parked, work.restored, work.dropped = 5, 1, 2
    now[0] += EVERY_S
    sentence, counts = log.tell()
    assert sentence.endswith("conversations 3 parked, 1 restored, 2 dropped")
    assert counts == {
        "conversations_parked": 5,
        "conversations_restored": 1,
        "conversations_dropped": 2,
    }


def test_phases_are_timed() -> None:
    work = Work()
    since = work.spent("run_s", 0.0)
    assert work.run_s == since > 0
    assert work.spent("draft_s", since) >= since
    assert work.choose_s == work.commit_s == 0
