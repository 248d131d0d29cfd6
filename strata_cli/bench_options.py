"""What every suite of `strata bench` can be told: the config, the model, engine flags, output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata_cli.console import Console
from strata_cli.options import (
    ConfigPath,
    Context,
    Device,
    EngineArgs,
    Json,
    Kv,
    ModelPath,
    Quiet,
    Slots,
    Spec,
    Synthetic,
    Verbose,
    given_path,
)

if TYPE_CHECKING:
    from engine.config import RunConfig

Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Any OpenAI server; else one is started here."),
]
ApiKey = Annotated[str | None, typer.Option(metavar="KEY", help="Of that server.")]
Served = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Which of its models; else the first that it lists."),
]
Save = Annotated[bool, typer.Option("--save", help="Append the records to bench/results.")]
Plot = Annotated[bool, typer.Option("--plot", help="Also draw it, in the terminal.")]
Png = Annotated[
    Path | None,
    typer.Option(
        "--png", metavar="FILE.png", parser=given_path, help="Also draw it as a picture, there."
    ),
]

SERVER = ("url", "api_key", "served")
"""What only suites that ask a server take."""
DRAWN = ("plot", "png")
"""What only suites that can be drawn take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options, each with its flag; those that a suite does not take have their default."""

    config: ConfigPath = None
    url: Url = None
    api_key: ApiKey = None
    served: Served = None
    save: Save = False
    plot: Plot = False
    png: Png = None
    model: ModelPath = None
    synthetic: Synthetic = None
    device: Device = None
    slots: Slots = None
    context: Context = None
    kv: Kv = None
    spec: Spec = None
    engine_args: EngineArgs = None
    as_json: Json = False
    quiet: Quiet = False
    verbose: Verbose = False

    @property
    def console(self) -> Console:
        """Where words go."""
        return Console(self.as_json, self.quiet, self.verbose)

    def flags(self, **derived: Any) -> RunConfig:
        """What is asked of the engine: `derived` by the suite, over what was typed."""
        from strata_cli.chosen import engine_flags

        typed = {name: getattr(self, name) for name in _ENGINE}
        said = {"max_context": self.context, "engine_args": self.engine_args, **typed, **derived}
        return engine_flags(**said)


_ENGINE = ("model", "synthetic", "device", "slots", "kv", "spec")


def suite(*, without: Iterable[str] = ()) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Makes a command of a function that takes a `Wanted` and options of its own.

    The command has its own options and then those of `Wanted`, but for those named in `without`.
    """
    left_out = frozenset(without)
    taken = [one.name for one in fields(Wanted) if one.name not in left_out]
    offered = inspect.signature(Wanted, eval_str=True).parameters

    def decorate(run: Callable[..., int]) -> Callable[..., int]:
        own = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
        own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        parameters = [*own, *(offered[name] for name in taken)]

        @wraps(run)
        def command(**said: Any) -> int:
            wanted = Wanted(**{name: said.pop(name) for name in taken})
            if wanted.png is not None:
                from bench.picture import check

                check(wanted.png)  # what is missing is told before an hour is measured
            return run(wanted, **said)

        # Typer reads a command's options from its signature.
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return command

    return decorate
