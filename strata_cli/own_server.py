"""A server of our own for as long as something is measured: `strata run` as a user starts it."""

from __future__ import annotations

import secrets
import shlex
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EngineDiedError
from engine.flags import engine_args
from engine.switches import API_KEY_VARIABLE, this_environment

if TYPE_CHECKING:
    from engine.config import EngineConfig

_QUIT_S = 30.0
_SAYS_WHERE = "listening on "
_READY = "ready"


@contextmanager
def own_server(path: Path | None, config: EngineConfig) -> Iterator[tuple[str, str]]:
    """The address of a server that is ready to run `config`, and its key. `path`: the config file.

    Raises `EngineDiedError` with its last words when it does not start.
    """
    key = secrets.token_hex(16)
    words = ["--host", "127.0.0.1", "--port", "0", "--engine-args", shlex.join(engine_args(config))]
    process = subprocess.Popen(
        [sys.executable, "-m", "strata_cli", "run", *([str(path)] if path else []), *words],
        env={**this_environment(), API_KEY_VARIABLE: key},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stderr is not None
    said: deque[str] = deque(maxlen=5)
    try:
        address = ""
        for line in process.stderr:
            said.append(line.strip())
            if line.startswith(_SAYS_WHERE):
                address = line.removeprefix(_SAYS_WHERE).split(",")[0].strip()
            if line.startswith(_READY):
                break
        else:
            raise EngineDiedError(f"the server did not start: {' / '.join(said)}")
        # What it says later must not fill the pipe.
        threading.Thread(target=deque, args=(process.stderr, 0), daemon=True).start()
        yield address, key
    finally:
        process.terminate()
        try:
            process.wait(_QUIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
