"""`python -m engine --serve FLAGS`: the engine process of the server."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from engine.errors import StrataError
from engine.process import Loaded, run_process
from engine.startup import engine_for, load_planned, plan_from_args
from engine.switches import switch_notes, this_environment, traces

_SERVE = "--serve"


def main(args: Sequence[str]) -> int:
    """Serves the line protocol on stdin and stdout; the exit code (2: wrong usage)."""
    if _SERVE not in args:
        print("usage: python -m engine --serve --model FILE.gguf [FLAGS]", file=sys.stderr)
        return 2
    flags = [arg for arg in args if arg != _SERVE]
    return run_process(lambda: _load(flags))


def _load(flags: Sequence[str]) -> Loaded:
    environment = this_environment()
    for note in switch_notes(environment):
        print(note, file=sys.stderr)
    plan = plan_from_args(flags)
    config = plan.config
    print(f"loading {config.model}", file=sys.stderr)
    model = load_planned(config)
    info: dict[str, int | str] = {
        "device": config.device,
        "kv": config.kv,
        "spec_min_p": str(config.spec_min_p),
        "mtp": int(model.pipeline.can_draft),
    }
    return Loaded(engine_for(model, config), config.max_context, info, traces(environment))


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except StrataError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        code = 1
    sys.exit(code)
