"""`strata`: the commands, and how an error becomes an exit code.

0 done, 1 the user can fix it or a check found a difference, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from engine.errors import StrataError
from engine.version import __version__
from strata_cli.bench_command import bench
from strata_cli.exactness_command import check_exactness
from strata_cli.run_command import run
from strata_cli.setup_command import setup

app = typer.Typer(
    name="strata",
    help="Runs very large mixture-of-experts models, with every token reproducible.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(setup)
app.command()(run)
app.add_typer(bench)
app.command("check-exactness")(check_exactness)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"strata {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(2)


def main() -> None:
    """The `strata` program."""
    sys.exit(run_cli(sys.argv[1:]))


def run_cli(args: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. Only our own bugs raise."""
    try:
        code = app(args=list(args), prog_name="strata", standalone_mode=False)
    except StrataError as error:
        _report(error.message, error.hint, as_json="--json" in args)
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # The reader left; Python must not fail again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        # Typer's usage errors share no public base over its releases; they know their code.
        describe = getattr(error, "format_message", None)
        if describe is None:
            raise
        _report(describe(), "strata --help lists commands and flags", as_json="--json" in args)
        return int(getattr(error, "exit_code", 2))
    return code if isinstance(code, int) else 0


def _report(message: str, hint: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": {"message": message, "hint": hint}}), flush=True)
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr, flush=True)
