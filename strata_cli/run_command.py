"""`strata run`: show the plan, then serve, or answer one prompt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import ConfigError
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
    from strata_cli.chosen import Chosen


def run(
    config: ConfigPath = None,
    model: ModelPath = None,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Answer this on stdout and exit.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most tokens of that answer.")
    ] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="Of that answer; 0 is greedy.")] = 0.0,
    seed: Annotated[int | None, typer.Option(min=1, help="Of that answer.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the plan and exit.")] = False,
    host: Annotated[str | None, typer.Option(help="Where the server listens.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Its port; 0: any free one.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(help="What clients must send.")] = None,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=given_path, help="Where the engine's log goes."),
    ] = None,
    device: Device = None,
    synthetic: Synthetic = None,
    slots: Slots = None,
    context: Context = None,
    kv: Kv = None,
    spec: Spec = None,
    engine_args: EngineArgs = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Show the plan and serve a model until a signal comes, or answer one prompt."""
    from strata_cli.chosen import choose, engine_flags
    from strata_cli.plan_view import plan_document, show_plan

    console = Console(as_json, quiet, verbose)
    if prompt is not None and not prompt.strip():
        raise ConfigError("--prompt is empty", "write a text after it")
    flags = engine_flags(
        model=model,
        synthetic=synthetic,
        device=device,
        slots=slots,
        max_context=context,
        kv=kv,
        spec=spec,
        engine_args=engine_args,
    )
    chosen = choose(config, flags, console)
    if plan:
        if as_json:
            console.document(plan_document(chosen.plan))
        show_plan(chosen.plan, console, result=True)
        return 0
    chosen.check_room()
    if prompt is not None:
        from strata_cli.answer import answer_once

        if verbose:
            show_plan(chosen.plan, console, result=False)
        return answer_once(chosen.plan.config, prompt, max_tokens, temperature, seed, console)
    show_plan(chosen.plan, console, result=False)
    if as_json:
        console.document(plan_document(chosen.plan))
    return _serve(chosen, host, port, api_key, log)


def _serve(
    chosen: Chosen, host: str | None, port: int | None, api_key: str | None, log: Path | None
) -> int:
    from engine.server.app import serve
    from strata_cli.server_options import server_options

    serve(server_options(chosen, sys.executable, host, port, api_key, log))
    return 0
