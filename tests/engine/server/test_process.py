"""The server as a process: signals, its own death, what it imports, and its port."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest

from engine.errors import ConfigError
from engine.server.app import bind, serve
from engine.server.options import ServerOptions
from tests.engine.server.harness import ENGINE, HANG_GUARD_S, ROOT, Control, environment, script

FIXTURE = ROOT / "tests" / "fixtures" / "q4exp-a-f16.gguf"


@contextmanager
def process(
    control: Control,
    settings: dict,
    stderr: IO[str] | None = None,
    files: int | None = None,
    **options: object,
) -> Iterator:
    """A server process and its address. `files`: how many it may open before it asks for more."""
    asked = json.dumps({"engine": ENGINE, "quit_s": 5, **options})
    command = [sys.executable, "-m", "tests.engine.server.serve_main", asked]
    env = environment(control, **settings)
    if files is not None:
        command = ["sh", "-c", f'ulimit -S -n {files} && exec "$@"', "sh", *command]
    with subprocess.Popen(
        command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as child:
        try:
            yield child, f"http://127.0.0.1:{json.loads(child.stdout.readline())['port']}"
        finally:
            child.kill()
    control.close()


def wait_for_end(pid: int) -> None:
    """Wait until process `pid`, which is no child of ours, is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([descriptor], [], [], HANG_GUARD_S)[0], "the engine still runs"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_and_its_engine(number: signal.Signals) -> None:
    control = Control()
    with process(control, {}, shutdown_grace_s=0.0) as (child, url):
        control.wait_for("start")
        body = {"prompt": script(say="abc", hold=1), "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=15) as response:
            while response.status_code == 503:
                response.read()
                response = httpx.stream("POST", f"{url}/v1/completions", json=body).__enter__()
            lines = response.iter_lines()
            next(lines)
            child.send_signal(number)
            rest = "\n".join(lines)
        assert "shutting down" in rest
        assert "[DONE]" not in rest
        last = json.loads(child.stdout.readline())
        assert child.wait(HANG_GUARD_S) == 0
        assert last["loaded"] == []
        control.wait_for("end")


def test_a_signal_while_loading_ends_at_once() -> None:
    control = Control()
    with process(control, {"hold_ready": True}) as (child, _):
        control.wait_for("start")
        child.send_signal(signal.SIGTERM)
        assert child.wait(HANG_GUARD_S) == 0
        wait_for_end(control.pid)


def test_a_running_answer_may_end_within_the_grace() -> None:
    control = Control()
    with process(control, {}, shutdown_grace_s=15.0) as (child, url):
        control.wait_for("start")
        body = {"prompt": script(say="abc", hold=1), "stream": True}
        with httpx.Client(transport=httpx.HTTPTransport(), timeout=15) as client:
            while client.get(f"{url}/health").status_code != 200:
                pass
            with client.stream("POST", f"{url}/v1/completions", json=body) as response:
                lines = response.iter_lines()
                first = next(lines)
                child.send_signal(signal.SIGTERM)
                while wire_accepts(url):
                    pass
                control.send("release")
                rest = "\n".join([first, *lines])
        assert [text for text in ('"text":"b"', '"text":"c"') if text not in rest] == []
        assert child.wait(HANG_GUARD_S) == 0


def wire_accepts(url: str) -> bool:
    """Whether the server still takes connections."""
    try:
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("stays", [False, True] if sys.platform == "linux" else [False])
def test_a_server_that_is_killed_takes_its_engine_with_it(stays: bool) -> None:
    control = Control()
    with process(control, {"stays": stays}) as (child, _):
        control.wait_for("start")
        child.kill()
        child.wait(HANG_GUARD_S)
        wait_for_end(control.pid)


def test_the_server_imports_no_tensor_library() -> None:
    code = (
        "import engine.server.app, sys; print([m for m in ('torch', 'numba') if m in sys.modules])"
    )
    if FIXTURE.exists():
        text = f"from engine.server.text_model import GgufText; GgufText(Path({str(FIXTURE)!r}))"
        code = f"from pathlib import Path; {text}; {code}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_port_in_use_is_an_honest_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        options = ServerOptions(engine=ENGINE, port=port)
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1"):
            bind(options)
        with pytest.raises(ConfigError, match="no model file"):
            serve(options)
        with pytest.raises(ConfigError, match=f"port {port}"):
            serve(ServerOptions(engine=ENGINE, port=port, gguf=Path("x.gguf")))


@pytest.mark.parametrize(
    "bad",
    [
        {"engine": ()},
        {"api_keys": ("",)},
        {"api_keys": ("a,",)},
        {"api_keys": (" ", "a")},
        {"port": 70000},
    ],
)
def test_bad_options_stop_the_start(bad: dict) -> None:
    with pytest.raises(ConfigError):
        ServerOptions(**{"engine": ENGINE, **bad})
