"""An engine that dies, refuses, falls silent or never starts."""

import json
import os
import signal
import threading

import httpx
import openai
import pytest

from engine.errors import EngineDiedError
from engine.server.app import Server, bind
from engine.server.options import ServerOptions
from tests.engine.server.byte_text import ByteText
from tests.engine.server.harness import (
    ENGINE,
    HANG_GUARD_S,
    Control,
    environment,
    error_of,
    running,
    script,
)


def events_of(response: httpx.Response) -> list[dict]:
    lines = [line for line in response.text.split("\n") if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_kill_9_in_mid_stream_is_an_error_for_each_client_and_the_next_request_works() -> None:
    with running({"slots": 4, "chatter": "a report of something else"}) as run:
        answers: dict[int, httpx.Response] = {}

        def ask(number: int) -> None:
            content = script(say="abcdef", hold=3)
            answers[number] = run.chat(content, stream=number % 2 == 0)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        run.until(lambda s: [len(t.generated) for t in s.bridge.running.values()] == [3] * 4)
        os.kill(run.control.pid, signal.SIGKILL)
        for thread in threads:
            thread.join(HANG_GUARD_S)
        for number, answer in answers.items():
            if number % 2 == 0:
                assert answer.status_code == 200
                error = events_of(answer)[-1]["error"]
                assert "[DONE]" not in answer.text, "it did not end well"
            else:
                assert answer.status_code == 503
                error = answer.json()["error"]
                assert "retry-after" in answer.headers
            assert error["message"].endswith("SIGKILL (perhaps out of memory)"), (
                "no line of the log"
            )
            assert error["code"] == "engine_died"
        assert run.chat(script(say="alive")).json()["choices"][0]["message"]["content"] == "alive"
        assert run.server.bridge.lives.started == 2


def test_the_openai_client_sees_the_error_of_a_stream() -> None:
    with running() as run:
        messages = [{"role": "user", "content": script(say="abc", die=2)}]
        stream = run.client().chat.completions.create(model="m", messages=messages, stream=True)
        with pytest.raises(openai.APIError, match="exit code 3"):
            list(stream)


def test_a_death_says_why() -> None:
    with running() as run:
        message = run.chat(script(say="abc", die=1)).json()["error"]["message"]
        assert "exit code 3" in message
        assert "it is only a test" in message
        assert "last words of the engine" in message
        assert run.http.get("/v1/status").json()["engine_deaths"] == 1


def test_requests_that_wait_while_the_engine_dies_are_served_by_the_next() -> None:
    with running({"slots": 1}) as run:
        answers: dict[str, httpx.Response] = {}

        def ask(name: str, **what: object) -> threading.Thread:
            def send() -> None:
                answers[name] = run.chat(script(**what))

            thread = threading.Thread(target=send)
            thread.start()
            return thread

        first = ask("first", say="abc", hold=1)
        run.until(lambda s: len(s.bridge.running) == 1)
        second = ask("second", say="patient")
        run.until(lambda s: len(s.bridge.queue) == 1)
        os.kill(run.control.pid, signal.SIGKILL)
        for thread in (first, second):
            thread.join(HANG_GUARD_S)
        assert answers["first"].status_code == 503
        assert answers["second"].json()["choices"][0]["message"]["content"] == "patient"


@pytest.mark.parametrize("stream", [False, True])
def test_a_refused_request_fails_alone_and_at_once(stream: bool) -> None:
    with running({"slots": 1}) as run:
        response = run.chat(script(refuse="no room: 9 tokens"), stream=stream)
        assert response.status_code == 400
        assert response.json()["error"]["message"] == "no room: 9 tokens"
        assert run.chat(script(say="x")).status_code == 200
        assert run.server.bridge.lives.started == 1


def test_a_request_that_fails_later_fails_alone() -> None:
    with running({"slots": 2}) as run:
        body = {"prompt": script(say="abcdef", hold=2), "stream": True}
        with run.http.stream("POST", "/v1/completions", json=body) as other:
            run.until(lambda s: any(len(t.generated) == 2 for t in s.bridge.running.values()))
            whole = run.chat(script(say="abc", fail=1))
            assert whole.status_code == 500
            assert whole.json()["error"]["message"] == "the window failed"
            streamed = run.chat(script(say="abc", fail=2), stream=True)
            assert events_of(streamed)[-1]["error"]["type"] == "server_error"
            run.control.send("release")
            other.read()
        assert [e["choices"][0]["text"] for e in events_of(other)][:6] == list("abcdef")


@pytest.mark.parametrize("written", [0, 2])
def test_a_schema_that_fails_while_it_is_followed_is_the_request_s_fault(written: int) -> None:
    why = "the schema is too complex: it is only a test"
    with running({"slots": 1, "facts": {"grammars": 1}}) as run:
        content = script(say="abcdef", fail=written, why=f"grammar: {why}")
        form = {"response_format": {"type": "json_object"}}
        error = error_of(run.chat(content, **form), 400)
        assert (error["param"], error["message"]) == ("response_format", f"response_format: {why}")
        streamed = run.chat(content, stream=True, **form)
        assert error in [event.get("error") for event in events_of(streamed) or [streamed.json()]]
        assert "[DONE]" not in streamed.text
        body = {"max_tokens": 9, "messages": [{"role": "user", "content": content}]}
        body["output_config"] = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
        message = run.http.post("/v1/messages", json=body).json()["error"]["message"]
        assert message == f"output_config.format: {why}"
        document = run.http.get("/metrics").json()
        assert [row["finish"] for row in document["requests"]] == ["error"] * 3
        assert (document["totals"]["requests"], document["totals"]["failed"]) == (3, 3)
        page = run.http.get("/metrics?format=prometheus").text
        assert 'finished_reason="cancel"} 0' in page


def test_what_a_failed_request_left_in_its_slot_is_not_trusted() -> None:
    with running({"slots": 1}) as run:
        held = run.server.bridge.slots.slots
        run.chat(script(say="abc"))
        kept = list(held[0].held)
        assert kept
        run.chat(script(refuse="too much"))
        assert held[0].held == kept
        run.chat(script(say="abc", fail=2))
        assert held[0].held == []


def test_an_admission_that_fails_is_no_answer_of_one_token() -> None:
    with running() as run:
        response = run.chat(script(say="abc", unseat=True))
        assert response.status_code == 500
        assert "first token" in response.json()["error"]["message"]
        assert run.chat(script(say="x")).status_code == 200


def test_a_silent_engine_is_replaced() -> None:
    with running(engine_silence_s=0.3) as run:
        response = run.chat(script(say="abc", mute=2))
        assert response.status_code == 503
        assert "said nothing" in response.json()["error"]["message"]
        assert run.chat(script(say="x")).status_code == 200
        assert run.server.bridge.lives.started == 2


def test_an_idle_engine_may_be_silent() -> None:
    with running(engine_silence_s=0.05) as run:
        for _ in range(3):
            assert run.chat(script(say="x")).status_code == 200
            assert run.server.bridge.lives.deaths == 0


def test_a_slot_that_never_stops_does_not_stay_busy_for_ever() -> None:
    with running({"slots": 2}, engine_silence_s=0.3) as run:
        body = {"prompt": script(say="abc" * 50, hold=3, deaf=True), "stream": True}
        with run.http.stream("POST", "/v1/completions", json=body):
            run.until(lambda s: any(len(t.generated) == 3 for t in s.bridge.running.values()))
        run.control.wait_for("bstop")
        while len(run.control.starting("start")) < 2:
            run.chat("the engine is not silent meanwhile")
        run.control.wait_for("start", 2)
        run.until(lambda s: s.bridge.lives.state == "ready")
        assert run.server.bridge.slots.busy == 0


def test_restarting_ends_and_a_new_request_tries_again() -> None:
    with running(engine_restarts=1) as run:
        for _ in range(2):
            assert run.chat(script(say="x", die=0)).status_code == 503
        run.until(lambda s: s.bridge.lives.state == "failed")
        assert run.http.get("/health").status_code == 503
        assert run.chat(script(say="back")).json()["choices"][0]["message"]["content"] == "back"
        run.until(lambda s: s.bridge.lives.state == "ready")
        assert run.server.bridge.lives.started == 3


def test_while_loading_health_says_so_and_requests_get_503() -> None:
    with running({"hold_ready": True}, ready=False) as run:
        run.control.wait_for("start")
        health = run.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "loading")
        for stream in (False, True):
            response = run.chat("x", stream=stream)
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "loading"
            assert int(response.headers["retry-after"]) >= 1
        run.control.send("ready")
        run.until(lambda s: s.bridge.lives.state == "ready")
        assert run.chat(script(say="x")).status_code == 200


def serve_once(engine: tuple[str, ...], **settings: object) -> str:
    control = Control()
    env = environment(control, **settings)
    options = ServerOptions(engine=engine, engine_env=env, port=0, engine_ready_s=0.3, quit_s=1)
    server = Server(options, ByteText(), bind(options))
    server.run()
    control.close()
    assert isinstance(server.failure, EngineDiedError)
    return server.failure.message


def test_an_engine_that_never_starts_ends_the_server_with_the_reason() -> None:
    message = serve_once(ENGINE, broken=True)
    assert "exit code 4" in message or "not ready" in message
    assert "cannot be started" in serve_once(("/no/such/engine",))


def test_an_engine_that_does_not_get_ready_in_time() -> None:
    assert "not ready after 0.3 s" in serve_once(ENGINE, hold_ready=True)
