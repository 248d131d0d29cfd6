"""`strata`: the commands, and how an error becomes an exit code.

0 done, 1 the user can fix it or a check found a difference, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from engine.errors import StrataError
from engine.version import __version__
from strata_cli.bench_command import bench
from strata_cli.console import Console, escape_what_cannot_be_encoded, silence, write
from strata_cli.exactness_command import check_exactness
from strata_cli.printable import line
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
        Console().result(f"strata {__version__}")
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
    escape_what_cannot_be_encoded()
    try:
        code = app(args=list(args), prog_name="strata", standalone_mode=False)
    except StrataError as error:
        _report(error.message, error.hint, as_json="--json" in args)
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # The reader left.
        silence(sys.stdout)
        return 1
    except OSError as error:
        # A disk that is full, a file that somebody removed: not a bug, wherever it is noticed.
        place = f"{error.filename}: " if error.filename else ""
        _report(f"{place}{error.strerror or error}", "", as_json="--json" in args)
        return 1
    except Exception as error:
        # Typer's usage errors share no public base over its releases; they know their code.
        describe = getattr(error, "format_message", None)
        if describe is None:
            raise
        _report(describe(), _usage_hint(error), as_json="--json" in args)
        return int(getattr(error, "exit_code", 2))
    return code if isinstance(code, int) else 0


def _usage_hint(error: Exception) -> str:
    """Which help lists what was misspelt: that of the command where the mistake is."""
    path = getattr(getattr(error, "ctx", None), "command_path", "strata")
    lists = "commands and flags" if path == "strata" else "its flags"
    return f"{path} --help lists {lists}"


def _report(message: str, hint: str, *, as_json: bool) -> None:
    """Tells an error; silently where nothing can be written any more."""
    said = f"error: {line(message)}\n" + (f"hint: {line(hint)}\n" if hint else "")
    with contextlib.suppress(StrataError, BrokenPipeError):
        write(sys.stderr, said)
    if as_json:
        with contextlib.suppress(StrataError, BrokenPipeError):
            Console(json=True).document({"error": {"message": message, "hint": hint}})
