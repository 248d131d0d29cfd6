"""Writes docs/cli.md: the commands' own help, the config file's keys and the engine's flags."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.update(COLUMNS="100", TERMINAL_WIDTH="100", NO_COLOR="1")

from marked_part import finish

from engine.flags import ENGINE_FLAGS, LATER_FLAGS
from setup.config.keys import CONFIG_KEYS, ConfigKey
from strata_cli.main import run_cli

DOCUMENT = "docs/cli.md"
BENCHES = ("decode", "prefill", "serve", "join", "soak", "pairs", "compare", "plot", "kernels")
COMMANDS = (
    *((), ("setup",), ("run",), ("check-exactness",), ("bench",)),
    *(("bench", name) for name in BENCHES),
)

INTRO = """# Commands, config file and engine flags

This file is written by `make docs` from the program itself.

stdout is the result; progress, notes and errors go to stderr. `--json` prints exactly one JSON
document on stdout (`strata run`: the plan, before it serves). Secrets, such as `api_key` and tokens
in `env`, are printed as `(not shown)`, in `--json` and `--dry-run`, too: only the file has them.
Control characters in names are printed as escapes such as `\\x1b`. Exit codes: 0 done, 1 something
that you can fix or a check that found a difference, 2 wrong usage, 130 interrupted. `NO_COLOR` is
honoured.
"""


def help_of(command: tuple[str, ...]) -> str:
    """What `strata COMMAND --help` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run_cli([*command, "--help"])
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())


def commands() -> str:
    """A section a command."""
    return "\n\n".join(
        f"## `{' '.join(('strata', *command))}`\n\n```\n{help_of(command)}\n```"
        for command in COMMANDS
    )


def keys() -> str:
    """The table of the config file."""
    rows = [
        f"| `{key.name}` | {key.meaning} | {key.allowed} | {_whose(key)} |" for key in CONFIG_KEYS
    ]
    return "\n".join(
        [
            "## `strata-<model>.json`\n",
            "JSON. Flags of a command win over the file, an engine flag in `args` over a key;",
            "then come the environment, a profile of the machine, and the defaults. Setup writes",
            "its own keys and leaves yours alone; what was chosen before stays unless a flag says",
            "otherwise, and `--reset` forgets it. The old file stays as `.bak`.",
            "A key that is not known, or that this version makes nothing of, is a warning; a",
            "value that cannot be used is an error. Paths count from the file's folder. A file",
            "with an `api_key` can be read by its owner only; the key may stand in",
            "`STRATA_API_KEY` instead, which wins over the file.\n",
            "| key | meaning | value | whose |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def _whose(key: ConfigKey) -> str:
    whose = "setup" if key.owned else "you"
    return whose if key.has_effect() else f"{whose}; no effect in this version"


def flags() -> str:
    """The table of engine flags."""
    rows = [
        f"| {', '.join(f'`{name}`' for name in flag.names)} | {flag.meaning} | {flag.allowed} |"
        for flag in ENGINE_FLAGS
    ]
    later = ", ".join(f"`{name}`" for name in LATER_FLAGS)
    return "\n".join(
        [
            "## Engine flags\n",
            "They stand in `args` of the config file, after `--engine-args` of a command, and on",
            "the command line of `python -m engine --serve`.\n",
            "| flag | meaning | value |",
            "|---|---|---|",
            *rows,
            f"\nTaken, and without effect in this version: {later}.",
        ]
    )


if __name__ == "__main__":
    finish(DOCUMENT, "\n\n".join([INTRO.strip(), commands(), keys(), flags()]) + "\n")
