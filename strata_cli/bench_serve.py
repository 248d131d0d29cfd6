"""`strata bench serve` and `strata bench compare`: clients of a server, and two saved runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from engine.errors import ConfigError
from strata_cli.bench_session import Save, numbers
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
    given_path,
)

_MOST_CLIENTS = 1024


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
    counts = numbers(clients, "--clients", 1, _MOST_CLIENTS)
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


def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", parser=given_path)],
    after: Annotated[Path, typer.Argument(metavar="AFTER", parser=given_path)],
    as_json: Json = False,
) -> int:
    """Two saved runs of a suite: the ratio of medians with its 95% interval, and how many samples
    are faster. A run is what --json printed, or a file of records, whose last ones count."""
    from bench.compare import compare as changes
    from bench.compare import read_run

    console = Console(as_json)
    found = list(changes(read_run(before), read_run(after)))
    if not found:
        raise ConfigError(f"{before} and {after} have no metric in common")
    if as_json:
        console.document({"changes": [asdict(change) for change in found]})
    rows = [
        (
            one.metric,
            f"{one.before:.4g}",
            f"{one.after:.4g}",
            one.unit,
            f"{one.ratio:.3f}",
            f"{one.low:.3f} to {one.high:.3f}",
            f"{one.faster} of {one.pairs}",
        )
        for one in found
    ]
    titles = ("metric", "before", "after", "unit", "ratio", "95% interval", "faster")
    console.table(titles, rows, result=True)
    return 0
