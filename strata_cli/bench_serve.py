"""`strata bench serve`: clients of a server."""

from __future__ import annotations

from typing import Annotated

import typer

from strata_cli.bench_session import MOST_CLIENTS, Save, numbers
from strata_cli.bench_target import ApiKey, Served, Url, target
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
)


def serve(
    config: ConfigPath = None,
    url: Url = None,
    api_key: ApiKey = None,
    served: Served = None,
    clients: Annotated[
        str, typer.Option(metavar="N,...", help="Clients that ask at the same time.")
    ] = "1,8",
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Questions of each client.")] = 3,
    words: Annotated[int, typer.Option(min=2, metavar="N", help="Words of a question.")] = 100,
    tokens: Annotated[
        int, typer.Option(min=2, metavar="N", help="Most tokens of an answer.")
    ] = 128,
    seed: Annotated[int, typer.Option(help="Of the questions.")] = 1,
    save: Save = False,
    model: ModelPath = None,
    synthetic: Synthetic = None,
    device: Device = None,
    slots: Slots = None,
    context: Context = None,
    kv: Kv = None,
    spec: Spec = None,
    engine_args: EngineArgs = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Clients of a server over HTTP: tokens per second of all of them, the time to the first token
    (TTFT) and between two tokens (TPOT), by percentiles of a round."""
    from bench.serve import Load, measure
    from strata_cli.chosen import engine_flags

    console = Console(as_json, quiet, verbose)
    counts = numbers(clients, "--clients", 1, MOST_CLIENTS)
    loads = [Load(count, rounds, words, tokens, seed) for count in counts]
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
    with target(config, flags, url, api_key, served, console) as server:
        found = list(measure(server.http, server.model, loads, console.note))
        return server.publish("serve", found, save)
