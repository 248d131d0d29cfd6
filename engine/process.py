"""The engine process: commands from stdin, windows through the model, lines to stdout."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.desk import Desk
from engine.engine import MAX_LOGPROBS, Engine
from engine.errors import StrataError
from engine.memory import MIB
from engine.messages import Failed, Info, Quit, Ready
from engine.pipes import Inbox, Outbox
from engine.version import __version__
from engine.work import ExpertCounts, WorkLog

_LAST_LINES_S = 2.0


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine, and what its INFO line says beside the engine's own counts."""

    engine: Engine
    max_context: int
    info: Mapping[str, int | str]
    trace: bool = False
    """Log a line for each admission."""
    experts: ExpertCounts | None = None
    """Of a model whose experts lie in two places."""


def run_process(load: Callable[[], Loaded]) -> int:
    """Serve stdin and stdout until QUIT or the end of input; the exit code.

    stdout is the protocol's alone: whatever else prints to it lands on stderr. An exception of
    `load` or of a window is told as ERR and ends the process with 1.
    """
    lines = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    outbox = Outbox(lines)
    inbox = Inbox(os.dup(0), end_now=lambda: os._exit(0))
    try:
        code = _serve(load, inbox, outbox)
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        code = 1
        outbox.send(Failed(_reason(error)))
        _log(error)
    inbox.ended()
    outbox.close(_LAST_LINES_S)
    return code


def _serve(load: Callable[[], Loaded], inbox: Inbox, outbox: Outbox) -> int:
    loaded = load()
    engine = loaded.engine
    outbox.send(Info(_facts(loaded)))
    outbox.send(Ready(loaded.max_context))
    trace = _log_line if loaded.trace else None
    desk = Desk(engine, outbox.send, time.monotonic, trace)
    work = WorkLog(engine.work, time.monotonic, loaded.experts)
    open_input = True
    while open_input or engine.busy:
        idle = not engine.busy
        commands = inbox.take(wait=idle)
        if idle:
            work.wakes()
        for command in commands:
            match command:
                case Quit():
                    return 0
                case None:
                    open_input = False
                case Failed():
                    outbox.send(command)
                case _:
                    desk.handle(command)
        desk.tell(engine.step())
        if work.due(idle=not engine.busy):
            sentence, counts = work.tell()
            if sentence:
                _log_line(sentence)
            if counts:
                outbox.send(Info(counts))
        if outbox.broken:
            print("nobody reads the engine's lines any more", file=sys.stderr)
            return 1
    return 0


def _facts(loaded: Loaded) -> dict[str, int | str]:
    options = loaded.engine.options
    return {
        "engine": __version__,
        "batch_slots": len(loaded.engine.slots),
        "context": loaded.max_context,
        "slot_cache": 1,
        "logprobs": MAX_LOGPROBS,
        "grammars": int(loaded.engine.constraints is not None),
        "spec": options.spec,
        "prefill": options.chunk,
        "prompt_cache": options.checkpoints,
        "conversation_cache_mib": options.parking.size_bytes // MIB,
        "conversation_cache_slots": options.parking.conversations,
        "conversation_cache_min_free_mib": options.parking.free_bytes // MIB,
        **loaded.info,
    }


def _reason(error: Exception) -> str:
    if isinstance(error, StrataError):
        return f"{error.message}: {error.hint}" if error.hint else error.message
    return f"{type(error).__name__}: {error}"


def _log_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _log(error: Exception) -> None:
    if isinstance(error, StrataError):
        print(f"error: {_reason(error)}", file=sys.stderr)
    else:
        traceback.print_exception(error)
