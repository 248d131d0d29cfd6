"""What a server lives through: engines that die or hang, full disks, and clients of every kind."""

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from engine.server.app import SWITCH_S
from tests.engine.server.harness import HANG_GUARD_S, Control, Running, error_of, running, script
from tests.engine.server.test_process import process, wait_for_end

FULL = Path("/dev/full")
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), HANG_GUARD_S)


def test_an_engine_that_hangs_is_replaced() -> None:
    """Stopped from outside, in the middle of a stream: alive, and silent for ever."""
    with running(engine_silence_s=0.3) as run:
        body = {"prompt": script(say="abcdef", hold=3), "stream": True}
        with run.http.stream("POST", "/v1/completions", json=body) as answer:
            run.until(lambda s: any(len(t.generated) == 3 for t in s.bridge.running.values()))
            os.kill(run.control.pid, signal.SIGSTOP)
            text = "".join(answer.iter_text())
        assert "it said nothing for 0.3 s" in text
        assert "[DONE]" not in text
        assert run.chat(script(say="x")).status_code == 200
        assert run.server.bridge.lives.started == 2


def test_a_head_must_come_in_time_and_an_answer_may_take_its_own() -> None:
    with running(head_timeout_s=0.3) as run, connect(run.server.port) as asking:
        body = json.dumps({"prompt": script(say="abc", hold=1)}).encode()
        asking.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        run.control.wait_for("bgen")
        with connect(run.server.port) as silent, connect(run.server.port) as slow:
            slow.sendall(HEAD)
            assert slow.recv(99) == silent.recv(99) == b""
        run.control.send("release")
        answer = b""
        while b'"text":"abc"' not in answer:
            piece = asking.recv(9999)
            assert piece, answer
            answer += piece
        assert b" 200 " in answer
        slow_body = HEAD + b"Content-Length: 2\r\n\r\n"
        asking.sendall(slow_body[:20])
        assert asking.recv(99) == b"", "also a further request of one connection"


def test_threads_that_compute_give_way_soon() -> None:
    with running():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)


def test_an_engine_that_hangs_does_not_hold_up_the_end() -> None:
    control = Control()
    with process(control, {}, quit_s=0.1) as (child, url):
        with httpx.Client(base_url=url, timeout=HANG_GUARD_S) as http:
            control.wait_for("start")
            while http.get("/health").status_code != 200:
                pass
        os.kill(control.pid, signal.SIGSTOP)
        child.send_signal(signal.SIGTERM)
        assert child.wait(HANG_GUARD_S) == 0
        wait_for_end(control.pid)


def test_an_engine_that_is_killed_while_idle_is_replaced() -> None:
    with running() as run:
        for life in (1, 2, 3):
            run.until(lambda s, life=life: s.bridge.lives.started == life)
            os.kill(run.control.wait_for("start", life) and run.control.pid, signal.SIGKILL)
            run.until(lambda s, life=life: s.bridge.lives.deaths == life)
        assert run.chat(script(say="x")).status_code == 200


@pytest.mark.skipif(not FULL.exists(), reason="no full disk to write to")
def test_a_full_disk_for_the_engine_s_log() -> None:
    """Nothing of the log can be kept; what is said of a death does not come from the disk."""
    with running({"chatter": "a line that finds no room"}, log=FULL) as run:
        assert run.chat(script(say="x")).status_code == 200
        message = error_of(run.chat(script(say="abc", die=1)), 503)["message"]
        assert "last words of the engine" in message
        assert run.chat(script(say="x")).status_code == 200


@pytest.mark.skipif(not FULL.exists(), reason="no full disk to write to")
def test_a_full_disk_for_what_the_server_says() -> None:
    control = Control()
    with FULL.open("w") as full, process(control, {}, stderr=full) as (child, url):
        control.wait_for("start")
        with httpx.Client(base_url=url, timeout=HANG_GUARD_S) as http:
            while http.get("/health").status_code != 200:
                pass
            os.kill(control.pid, signal.SIGKILL)
            control.wait_for("start", 2)
            body = {"prompt": script(say="abc")}
            answer = http.post("/v1/completions", json=body)
        assert answer.json()["choices"][0]["text"] == "abc"
        child.send_signal(signal.SIGTERM)
        assert child.wait(HANG_GUARD_S) == 0


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as this process may have; a child starts with the usual 1,024."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (usual[1], usual[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, usual)


@pytest.mark.usefixtures("many_files")
def test_a_thousand_idle_connections() -> None:
    """Also where the shell allows 256 open files: the server asks for more."""
    control = Control()
    with process(control, {}, files=256) as (child, url), ExitStack() as wires:
        control.wait_for("start")
        port = int(url.rpartition(":")[2])
        for _ in range(1000):
            wires.enter_context(connect(port))
        with httpx.Client(base_url=url, timeout=HANG_GUARD_S) as http:
            while http.get("/health").status_code != 200:
                pass
            answer = http.post("/v1/completions", json={"prompt": script(say="abc")})
            assert answer.json()["choices"][0]["text"] == "abc"
        assert len(psutil.Process(child.pid).net_connections()) > 1000
        child.send_signal(signal.SIGTERM)
        assert child.wait(HANG_GUARD_S) == 0, "they do not hold up its end"


@pytest.mark.parametrize("sent", [HEAD[:30], HEAD + b"Content-Length: 90\r\n\r\n{"])
def test_requests_that_stop_in_the_middle_hinder_nobody(sent: bytes) -> None:
    with running({"slots": 1}) as run, ExitStack() as wires:
        for _ in range(100):
            wires.enter_context(connect(run.server.port)).sendall(sent)
        assert run.chat(script(say="x")).status_code == 200
        wires.close()
        assert run.chat(script(say="x")).status_code == 200
        assert not run.server.bridge.running


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_of_300_mb(declared: bool) -> None:
    """It is refused, to a client that reads only when it has sent all, and not kept."""
    control = Control()
    piece, count = b" " * 10**6, 300
    with process(control, {}, max_body_bytes=20 * 10**6) as (child, url):
        control.wait_for("start")
        head = b"Content-Length: %d" % (len(piece) * count)
        head = head if declared else b"Transfer-Encoding: chunked"
        with connect(int(url.rpartition(":")[2])) as wire:
            wire.sendall(HEAD + head + b"\r\n\r\n")
            for _ in range(count):
                wire.sendall(piece if declared else b"%x\r\n%s\r\n" % (len(piece), piece))
            wire.sendall(b"" if declared else b"0\r\n\r\n")
            assert b" 413 " in wire.recv(4096)
        peak = Path(f"/proc/{child.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
        assert int(peak) < 200_000, "KiB"
        assert httpx.post(f"{url}/tokenize", json={"content": "a"}).json()["tokens"] == [97]


def stream_of(run: Running, content: str) -> socket.socket:
    """A connection with room for very little, on which a stream was asked for."""
    body = json.dumps({"prompt": content, "stream": True}).encode()
    wire = socket.socket()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    wire.connect(("127.0.0.1", run.server.port))
    wire.settimeout(HANG_GUARD_S)
    wire.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return wire


def test_slow_readers_get_all_of_it_and_hold_up_nobody() -> None:
    """The engine is done long before they are."""
    said = "".join(chr(97 + number % 26) for number in range(3000))
    with running({"slots": 4, "context": 10**5}) as run, ExitStack() as wires:
        slow = [wires.enter_context(stream_of(run, script(say=said))) for _ in range(3)]
        run.control.wait_for("bgen", 3)
        run.until(lambda s: not s.bridge.running)
        assert run.chat(script(say="quick")).status_code == 200

        for wire in slow:
            raw = b""
            while not raw.endswith(b"0\r\n\r\n"):
                raw += wire.recv(1000)
            lines = [line for line in raw.split(b"\n") if line.startswith(b'data: {"id"')]
            texts = [json.loads(line[6:])["choices"][0]["text"] for line in lines]
            assert "".join(texts) == said


def test_clients_that_never_read_lose_their_slots() -> None:
    with running({"slots": 2, "context": 10**6}, outbox_limit=50) as run, ExitStack() as wires:
        for _ in range(4):
            wires.enter_context(stream_of(run, script(say="ab" * 20_000)))
        run.control.wait_for("bstop", 4)
        run.until(lambda s: not s.bridge.running and not s.bridge.queue)
        with ThreadPoolExecutor(4) as clients:
            answers = list(clients.map(run.chat, [script(say="x")] * 4))
        assert [answer.status_code for answer in answers] == [200] * 4
