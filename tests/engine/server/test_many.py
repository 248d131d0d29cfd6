"""Many clients at once, clients that leave, clients that do not read."""

import asyncio
import json
import socket
import threading

import httpx
import pytest
from openai import AsyncOpenAI

from tests.engine.server.harness import HANG_GUARD_S, Running, running, script


def test_sixty_clients_on_four_slots_in_order_of_arrival() -> None:
    async def one(client: AsyncOpenAI, number: int) -> str:
        said = script(say=f"answer {number} " + "ä" * 20)
        messages = [{"role": "user", "content": said}]
        if number % 2:
            answer = await client.chat.completions.create(model="m", messages=messages)
            return answer.choices[0].message.content or ""
        stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_of_them(url: str) -> list[str]:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(one(client, number) for number in range(60)))

    with running() as run:
        answers = asyncio.run(all_of_them(run.url))
        assert answers == [f"answer {number} " + "ä" * 20 for number in range(60)]
        sent = [line.split()[2] for line in run.control.wait_for("bgen", 60)]
        assert sent == [f"r{number}" for number in range(1, 61)]
        run.until(lambda s: s.bridge.slots.busy == 0 and not s.bridge.running)
        assert {line.split()[1] for line in run.control.starting("bgen")} == {"0", "1", "2", "3"}


def test_a_burst_of_connections_is_not_reset() -> None:
    with running() as run:
        wires = [socket.socket() for _ in range(200)]
        for wire in wires:
            wire.setblocking(False)
            wire.connect_ex(("127.0.0.1", run.server.port))
        for wire in wires:
            wire.settimeout(HANG_GUARD_S)
            wire.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        for wire in wires:
            assert b"200 OK" in wire.recv(4096)
            wire.close()


def leave(run: Running, content: str, stream: bool, when: str) -> None:
    """Send a chat request, wait until the engine did `when`, and close the connection."""
    body = json.dumps({"messages": [{"role": "user", "content": content}], "stream": stream})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", run.server.port), HANG_GUARD_S) as wire:
        wire.sendall(f"{head}\r\n\r\n{body}".encode())
        run.control.wait_for(when)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("hold", ["hold", "hold_read"])
def test_a_client_that_leaves_frees_its_slot(stream: bool, hold: str) -> None:
    with running({"slots": 1}) as run:
        leave(run, script(say="x" * 50, **{hold: 0 if hold == "hold_read" else 1}), stream, "bgen")
        assert run.control.wait_for("bstop 0 r1")
        assert run.chat(script(say="next")).json()["choices"][0]["message"]["content"] == "next"
        assert run.http.get("/metrics").json()["requests"][1]["finish"] == "cancel"


def held(run: Running, count: int, **more: object) -> list[threading.Thread]:
    """Requests that occupy slots until they are released."""
    threads = []
    for number in range(count):
        content = script(say=f"held {number}", hold=2)
        thread = threading.Thread(target=run.chat, args=(content,), kwargs=more)
        thread.start()
        threads.append(thread)
    run.until(lambda s: len(s.bridge.running) == min(count, len(s.bridge.slots)))
    return threads


def test_a_client_that_leaves_the_queue_is_never_sent() -> None:
    with running({"slots": 1}) as run:
        (first,) = held(run, 1)
        body = {"prompt": "not sent", "stream": True}
        with run.http.stream("POST", "/v1/completions", json=body) as response:
            del response
            run.until(lambda s: len(s.bridge.queue) == 1)
        run.until(lambda s: not s.bridge.queue)
        run.control.send("release")
        first.join(HANG_GUARD_S)
        assert run.chat("after").status_code == 200
        assert not [line for line in run.control.lines if "not sent" in line]


def test_keep_alive_while_queued_and_while_reading() -> None:
    with running({"slots": 1}, keepalive_s=0.02) as run:
        (first,) = held(run, 1)
        body = {"prompt": script(say="late", hold_read=0), "stream": True}
        with run.http.stream("POST", "/v1/completions", json=body) as response:
            lines = response.iter_lines()
            queued = [next(lines) for _ in range(6)]
            assert set(queued) == {": keep-alive", ""}
            run.control.send("release")
            first.join(HANG_GUARD_S)
            run.control.wait_for("bgen", 2)
            reading = [next(lines) for _ in range(6)]
            assert set(reading) == {": keep-alive", ""}
            run.control.send("release")
            text = "\n".join(lines)
        assert '"text":"l"' in text
        assert text.rstrip().endswith("[DONE]")


def test_keep_alive_while_text_is_held_back() -> None:
    with running(keepalive_s=0.02) as run:
        said = script(say="STO", hold=3)
        body = {"prompt": said, "stream": True, "stop": "STOP!"}
        with run.http.stream("POST", "/v1/completions", json=body) as response:
            lines = response.iter_lines()
            assert {next(lines) for _ in range(10)} == {": keep-alive", ""}
            run.control.send("release")
            assert '"text":"STO"' in "\n".join(lines)


def test_a_full_queue_says_when_to_come_back() -> None:
    with running({"slots": 1}, queue_limit=2) as run:
        waiting = held(run, 3)
        run.until(lambda s: len(s.bridge.queue) == 2)
        for stream in (False, True):
            response = run.chat("x", stream=stream)
            assert response.status_code == 429
            assert int(response.headers["retry-after"]) >= 1
            assert response.json()["error"]["type"] == "rate_limit_error"
        many = run.http.post("/v1/completions", json={"prompt": ["a", "b", "c"]})
        assert many.status_code == 429
        while any(thread.is_alive() for thread in waiting):
            run.control.send("release")
            waiting[0].join(0.01)
            waiting = [thread for thread in waiting if thread.is_alive()]
        run.until(lambda s: not s.bridge.running)


def test_some_of_many_prompts_that_do_not_fit_leave_nothing_behind() -> None:
    with running({"slots": 1}, queue_limit=1) as run:
        holding = script(say="x", hold_read=0)
        response = run.http.post("/v1/completions", json={"prompt": [holding, "b", "c"]})
        assert response.status_code == 429
        run.control.wait_for("bstop 0 r1")
        run.until(lambda s: not s.bridge.running and not s.bridge.queue)


def slow_reader(run: Running, content: str) -> socket.socket:
    """A client that asks for a stream and never reads it."""
    body = json.dumps({"messages": [{"role": "user", "content": content}], "stream": True})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    wire = socket.socket()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    wire.connect(("127.0.0.1", run.server.port))
    wire.sendall(f"{head}\r\n\r\n{body}".encode())
    return wire


def test_a_client_that_does_not_read_blocks_nobody_and_loses_its_slot() -> None:
    with running({"slots": 2, "context": 10**6}, outbox_limit=50) as run:
        wire = slow_reader(run, script(say="ab" * 20000))
        try:
            run.control.wait_for("bgen")
            assert run.chat(script(say="quick")).json()["usage"]["completion_tokens"] == 6
            run.control.wait_for("bstop 0 r1")
            run.until(lambda s: not s.bridge.running)
            rows = run.http.get("/metrics?requests=all").json()["requests"]
            assert [row["output_tokens"] > 50 for row in rows if "slowly" in str(row["error"])]
        finally:
            wire.close()


def test_the_next_turn_goes_to_its_slot() -> None:
    with running() as run:
        first = script(say="one")
        run.http.post("/v1/completions", json={"prompt": first})
        run.http.post("/v1/completions", json={"prompt": "another"})
        run.http.post("/v1/completions", json={"prompt": first + "one more"})
        slots = [line.split()[1] for line in run.control.wait_for("bgen", 3)]
        assert slots == ["0", "1", "0"]


def test_slots_and_activity_are_visible() -> None:
    with running({"slots": 2}) as run:
        threads = held(run, 3)
        run.until(lambda s: all(t.phase == "decoding" for t in s.bridge.running.values()))
        run.until(lambda s: len(s.bridge.queue) == 1)
        live = run.http.get("/metrics").json()["live"]
        assert (live["running"], live["waiting"], live["state"]) == (2, 1, "generating")
        page = run.http.get("/metrics?format=prometheus").text
        assert 'strata:live_slots{model_name="strata",state="decoding"} 2' in page
        status = run.http.get("/v1/status").json()
        assert status["activity"]["in_flight"] == 3
        while any(thread.is_alive() for thread in threads):
            run.control.send("release")
            threads[-1].join(0.01)


def test_a_stream_is_stopped_by_closing_it() -> None:
    with running({"slots": 1}) as run:
        messages = [{"role": "user", "content": script(say="abc" * 100, hold=3)}]
        create = run.client().chat.completions.create
        stream = create(model="m", messages=messages, stream=True)
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        stream.close()
        run.control.wait_for("bstop 0 r1")
        assert run.chat(script(say="free")).status_code == 200


def test_pipelined_keep_alive_connections() -> None:
    with running() as run, httpx.Client(base_url=run.url) as client:
        for number in range(20):
            body = {"prompt": script(say=str(number))}
            answer = client.post("/v1/completions", json=body).json()
            assert answer["choices"][0]["text"] == str(number)
