"""`strata bench`: measure this machine."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from engine.errors import ConfigError
from strata_cli.console import Console
from strata_cli.options import (
    ConfigPath,
    EngineArgs,
    Json,
    Kv,
    ModelPath,
    Quiet,
    Spec,
    Verbose,
)

bench = typer.Typer(name="bench", help="Measure this machine.", rich_markup_mode=None)


@bench.callback(invoke_without_command=True)
def _suites(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(2)


@bench.command()
def decode(
    config: ConfigPath = None,
    model: ModelPath = None,
    streams: Annotated[
        str, typer.Option(metavar="N,...", help="Conversations decoded together.")
    ] = "1,2,4,8",
    tokens: Annotated[int, typer.Option(min=2, metavar="N", help="Tokens of each.")] = 128,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Runs of each.")] = 3,
    peer: Annotated[
        bool, typer.Option("--peer/--no-peer", help="Also llama.cpp, where it is installed.")
    ] = True,
    save: Annotated[
        bool, typer.Option("--save", help="Append the records to bench/results.")
    ] = False,
    kv: Kv = None,
    spec: Spec = None,
    engine_args: EngineArgs = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Decode speed, drafts off and on, beside llama.cpp on the same file."""
    from dataclasses import replace
    from pathlib import Path

    from bench import records
    from bench.decode import measure, measure_peer
    from engine.startup import load_planned, options_of
    from setup.probe import ThisMachine, probe
    from strata_cli.chosen import choose, engine_flags
    from strata_cli.plan_view import plan_document

    console = Console(as_json, quiet, verbose)
    counts = _counts(streams)
    flags = engine_flags(model=model, slots=max(counts), kv=kv, spec=spec, engine_args=engine_args)
    chosen = choose(config, flags, console)
    chosen.check_room()
    plan = chosen.plan
    fitting = [count for count in counts if count <= plan.config.slots]
    for count in counts:
        if count not in fitting:
            console.warn(f"{count} streams are left out: {plan.config.slots} slots fit in memory")
    found = []
    for most in sorted({1, plan.config.spec}):
        loaded = load_planned(plan.config, spec=most)
        encode = loaded.tokenizer.encode
        found += measure(
            loaded.pipeline,
            encode,
            replace(options_of(plan.config), spec=most),
            streams=fitting,
            tokens=tokens,
            repeat=repeat,
            progress=console.note,
        )
    if peer:
        threads = os.cpu_count() or 1
        path = plan.config.model
        found += measure_peer(path, encode, tokens=tokens, threads=threads, repeat=repeat)
    where = records.circumstances(
        ["strata", *sys.argv[1:]],
        probe(ThisMachine(Path.cwd())),
        plan.config.model.name,
        {**plan_document(plan)["config"], "model": plan.config.model.name},
    )
    lines = [records.as_record(one, where) for one in found]
    if save:
        console.note(f"saved to {records.save('decode', lines)}")
    if as_json:
        console.document({"records": lines})
    rows = [
        (one.name, f"{one.value:.1f}", one.unit, " ".join(f"{s:.1f}" for s in one.samples))
        for one in found
    ]
    console.table(("name", "median", "unit", "samples"), rows, result=True)
    return 0


def _counts(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and 0 < int(word) <= 4096 for word in words):
        raise ConfigError(f"--streams: {text!r} is not whole numbers from 1 to 4096, as in 1,4,8")
    return [int(word) for word in words]
