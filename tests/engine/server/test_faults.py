"""Faults that users of servers like this one ran into, and the test that would have caught each.

Several clients

* several requests at once, or not in order:
  test_many::test_sixty_clients_on_four_slots_in_order_of_arrival
* one answer depends on the others:
  test_with_engine::test_sixty_clients_get_what_they_get_alone
* a long prompt blocks a short question:
  ../test_scheduler::test_a_short_prompt_does_not_wait_for_a_long_one
* a prompt being read stops every stream:
  ../test_scheduler::test_writers_go_on_beside_a_prompt
* a long read never gives way, or for ever:
  ../test_scheduler::test_a_long_prompt_gives_way_twice_and_then_keeps_its_half
* a request to give way is lost before the first chunk:
  ../test_desk::test_a_read_gives_way_where_the_window_under_way_ends
* those that wait are not served in order, or starve:
  test_waiting::test_nobody_is_overtaken_by_one_that_came_much_later
* slots lose their drafts:
  ../test_scheduler::test_window_rows_limits_drafts_and_never_a_writers_own_row
* slots ignore penalties:
  ../test_engine::test_answers_equal_those_of_a_model_with_nothing_cached
* slots ignore stop strings:
  test_chat::test_a_stop_string_never_leaks_and_frees_the_slot
* slots tell no progress of the prompt:
  test_faults::test_each_of_several_prompts_tells_its_own_progress
* long, long, short on two slots: deadlock:
  test_faults::test_two_long_prompts_and_a_short_one_on_two_slots
* a slot stays busy for ever:
  test_failures::test_a_slot_that_never_stops_does_not_stay_busy_for_ever
* bursts of clients are reset:
  test_many::test_a_burst_of_connections_is_not_reset
* queued requests get no keep-alive:
  test_many::test_keep_alive_while_queued_and_while_reading
* pooled connections break:
  test_many::test_pipelined_keep_alive_connections
* a client that left keeps the engine busy, also while its prompt is read:
  test_many::test_a_client_that_leaves_frees_its_slot
* the prompt counts twice, or as nothing:
  test_faults::test_a_prompt_that_is_held_already_still_counts

The engine

* it is killed for memory:
  test_failures::test_kill_9_in_mid_stream_is_an_error_for_each_client_and_the_next_request_works
* it hangs in mid-answer:
  test_survival::test_an_engine_that_hangs_is_replaced
* it is alive and silent, with slots too:
  test_failures::test_a_silent_engine_is_replaced
* it is never ready, and nobody looks at the clock:
  test_failures::test_an_engine_that_does_not_get_ready_in_time
* it does not start, and does not say why:
  test_failures::test_an_engine_that_never_starts_ends_the_server_with_the_reason
* it hangs at its end:
  ../test_process::test_quit_ends_it_while_a_window_hangs
* those that wait while it dies hang:
  test_failures::test_requests_that_wait_while_the_engine_dies_are_served_by_the_next
* those that come while it starts again fail:
  test_faults::test_a_request_during_a_restart_waits_for_it
* a refusal holds up the queue:
  test_failures::test_a_refused_request_fails_alone_and_at_once
* a refusal names no request, and both sides lose step:
  test_failures::test_a_request_that_fails_later_fails_alone
* a failed window gives no reason:
  test_with_engine::test_a_window_that_breaks_is_named_and_the_next_request_works
* a failed admission is an answer of one token:
  test_failures::test_an_admission_that_fails_is_no_answer_of_one_token
* lines wait in a pipe:
  ../test_process::test_a_stopped_slot_says_cancel_and_keeps_what_it_holds

Answers

* the same token for ever:
  test_chat::test_the_same_token_for_ever_is_ended
* thinking for ever:
  ../test_constraints::test_thoughts_have_a_limit
* an answer that ends within its thoughts is lost:
  test_faults::test_an_answer_that_ends_within_its_thoughts
* thoughts may be longer than the answer:
  test_anthropic::test_bad_requests
* half-written calls of tools:
  test_chat::test_a_call_that_is_cut_off_is_not_a_call
* small requests think:
  test_anthropic::test_thinking_is_a_block_of_its_own
* JSON that is none drops the connection:
  test_fields::test_a_body_that_is_no_object
* pictures are taken and not understood:
  test_fields::test_a_picture_is_refused_by_name
* a limit that is too large is refused, whatever the config says:
  test_requests::test_a_limit_that_does_not_fit_is_fitted_if_wanted

What is told, and to whom

* totals, drafts and slots are wrong:
  test_requests::test_metrics_in_both_forms
* slots that write are not counted; requests in flight are 0 or 1:
  test_many::test_slots_and_activity_are_visible
* the wait in the queue is left out of the time to the first token:
  test_faults::test_the_wait_in_the_queue_counts
* the status shows what was asked and answered:
  test_faults::test_no_status_shows_what_was_asked_or_answered
* keys are not asked for:
  test_access::test_a_key_is_asked_for_where_it_matters
* any page of the web may ask:
  test_access::test_without_a_key_only_own_names_and_pages
* a port in use:
  test_process::test_a_port_in_use_is_an_honest_error
* other names of the model:
  test_requests::test_models_health_status_and_page
"""

import os
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.messages import Keys
from engine.server.bridge import Bridge
from engine.server.metrics import Metrics
from engine.server.options import ServerOptions
from engine.server.ticket import Ticket
from tests.engine.server.harness import HANG_GUARD_S, running, script
from tests.engine.server.test_failures import events_of
from tests.engine.server.test_with_engine import ask, toy

CASES = re.findall(r"^\* .+:\n  (\S+)::(\w+)$", __doc__, re.MULTILINE)


@pytest.mark.parametrize(("file", "test"), CASES)
def test_every_fault_has_a_test(file: str, test: str) -> None:
    path = (Path(__file__).parent / file).with_suffix(".py")
    assert f"def {test}(" in path.read_text()


def test_each_of_several_prompts_tells_its_own_progress() -> None:
    with running({"slots": 2}) as run:

        def told(length: int) -> tuple[set[int], list[int], int]:
            content = script(say="x") + "." * length
            answer = run.chat(content, stream=True, return_progress=True)
            chunks = events_of(answer)
            progress = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
            totals = {one["total"] for one in progress}
            prompt = chunks[-1]["usage"]["prompt_tokens"]
            return totals, [one["processed"] for one in progress], prompt

        with ThreadPoolExecutor(2) as clients:
            for totals, processed, prompt in clients.map(told, (150, 400)):
                assert totals == {prompt}
                assert processed == [*range(64, prompt, 64), prompt]


def test_two_long_prompts_and_a_short_one_on_two_slots() -> None:
    prompts = ([5] * 300, [6] * 300, [7] * 3)
    with running(**toy()) as run:
        alone = [ask(run, ids, max_tokens=20).json()["choices"][0]["text"] for ids in prompts]
        for _ in range(3):
            with ThreadPoolExecutor(3) as clients:
                answers = clients.map(lambda ids: ask(run, ids, max_tokens=20).json(), prompts)
                assert [one["choices"][0]["text"] for one in answers] == alone


def test_a_prompt_that_is_held_already_still_counts() -> None:
    with running() as run:
        said = script(say="abc", reuse=10**6)
        body = {"max_tokens": 9, "messages": [{"role": "user", "content": said}]}
        usage = run.http.post("/v1/messages", json=body).json()["usage"]
        assert usage["input_tokens"] == 1
        counted = run.http.post("/v1/messages/count_tokens", json=body).json()["input_tokens"]
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == counted


def test_a_request_during_a_restart_waits_for_it() -> None:
    with running({"hold_ready": True}, ready=False) as run:
        run.control.wait_for("start")
        run.control.send("ready")
        run.until(lambda s: s.bridge.lives.state == "ready")
        os.kill(run.control.pid, signal.SIGKILL)
        run.control.wait_for("start", 2)
        answers = []
        client = threading.Thread(target=lambda: answers.append(run.chat(script(say="late"))))
        client.start()
        run.until(lambda s: len(s.bridge.queue) == 1)
        run.control.send("ready")
        client.join(HANG_GUARD_S)
        assert answers[0].json()["choices"][0]["message"]["content"] == "late"


@pytest.mark.parametrize(("limit", "finish"), [(100, "stop"), (4, "length")])
def test_an_answer_that_ends_within_its_thoughts(limit: int, finish: str) -> None:
    with running() as run:
        answer = run.chat(script(say="so and so"), max_tokens=limit, reasoning_effort="high").json()
        choice = answer["choices"][0]
        assert choice["message"]["reasoning_content"] == "so and so"[:limit]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("", finish)


def test_the_wait_in_the_queue_counts() -> None:
    options = ServerOptions(engine=("engine",))
    counted = Metrics(options, Bridge(options))
    ticket = Ticket("r1", (1, 2), 5, Keys(), 9, created=100.0)
    ticket.sent, ticket.first_token = 130.0, 132.0
    ticket.end("stop")
    counted.over(ticket)
    assert (counted.ttft.count, counted.ttft.sum_s) == (1, 32.0)


def test_no_status_shows_what_was_asked_or_answered() -> None:
    with running({"slots": 1}) as run:
        body = {"prompt": script(say="SECRET answer", hold=9, ask="SECRET"), "stream": True}
        with run.http.stream("POST", "/v1/completions", json=body) as answer:
            run.until(lambda s: any(len(t.generated) == 9 for t in s.bridge.running.values()))
            for path in ("/v1/status", "/metrics?requests=all", "/slots", "/props", "/health", "/"):
                assert "SECRET" not in run.http.get(path).text
            run.control.send("release")
            assert "SECRET" not in run.http.get("/v1/status").text
            answer.read()
        for path in ("/v1/status", "/metrics?requests=all", "/slots"):
            assert "SECRET" not in run.http.get(path).text
