"""`strata bench serve` and `strata bench compare`: clients of a server, and two saved runs."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import ConfigError
from strata_cli.bench_session import BenchSession, Save, numbers, publish
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
    from bench.records import Circumstances

_MOST_CLIENTS = 1024


def serve(
    config: ConfigPath = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Any OpenAI server; else one is started here."),
    ] = None,
    api_key: Annotated[str | None, typer.Option(metavar="KEY", help="Of that server.")] = None,
    served: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which of its models; else the first that it lists."),
    ] = None,
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
    from bench.serve import Load, connect, first_model, measure
    from strata_cli.chosen import engine_flags
    from strata_cli.own_server import own_server

    console = Console(as_json, quiet, verbose)
    counts = numbers(clients, "--clients", 1, _MOST_CLIENTS)
    loads = [Load(count, rounds, words, tokens, seed) for count in counts]
    if url is not None:
        with connect(url, api_key) as http:
            name = served or first_model(http)
            found = list(measure(http, name, loads, console.note))
        return publish("serve", found, _elsewhere(url, name, api_key), console, save=save)
    if api_key or served:
        raise ConfigError("--api-key and --served are about another server", "name it with --url")
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
    session = BenchSession.begin(config, flags, console)
    with own_server(config, session.plan.config) as (own, key), connect(own, key) as http:
        found = list(measure(http, first_model(http), loads, console.note))
    return session.finish("serve", found, save=save)


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


def _elsewhere(url: str, model: str, api_key: str | None) -> Circumstances:
    """Of a server that only its address is known of; the key stays out of the records."""
    from bench.records import circumstances
    from setup.probe import ThisMachine, probe

    command = ["strata", *sys.argv[1:]]
    if api_key:
        command = [word.replace(api_key, "KEY") for word in command]
    here = probe(ThisMachine(Path.cwd()))
    return circumstances(command, here, model, {"url": url}, "unknown")
