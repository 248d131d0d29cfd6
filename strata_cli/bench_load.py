"""`strata bench join` and `strata bench soak`: prompts that join, and a random load."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.errors import ConfigError
from strata_cli.bench_session import MOST_TOKENS, Repeat, Save, numbers
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


def join(
    config: ConfigPath = None,
    url: Url = None,
    api_key: ApiKey = None,
    served: Served = None,
    scenarios: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="joiner, two_joiners, read_alone, followup and next_turn.",
        ),
    ] = "joiner,followup,next_turn",
    streams: Annotated[int, typer.Option(min=1, metavar="N", help="Answers being written.")] = 4,
    long: Annotated[str, typer.Option(metavar="N", help="Tokens of a prompt that joins.")] = "64k",
    second: Annotated[str, typer.Option(metavar="N", help="Of the second one.")] = "32k",
    history: Annotated[
        str, typer.Option(metavar="N", help="Tokens of a conversation that goes on.")
    ] = "20k",
    crowd: Annotated[
        int, typer.Option(min=1, metavar="N", help="Others who ask before it goes on again.")
    ] = 16,
    tokens: Annotated[
        int, typer.Option(min=16, metavar="N", help="Most tokens of a stream.")
    ] = 2048,
    repeat: Repeat = 3,
    seed: Annotated[int, typer.Option(help="Of the texts.")] = 1,
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
    """Long prompts that join streams: the longest stop of a stream, and the time to the first token
    (TTFT) of who joins; a short question behind a long prompt; next turns of a conversation."""
    from bench.join import SCENARIOS, Sizes, measure
    from strata_cli.chosen import engine_flags

    console = Console(as_json, quiet, verbose)
    names = [name.strip() for name in scenarios.split(",")]
    for name in names:
        if name not in SCENARIOS:
            raise ConfigError(f"--scenarios: {name!r} is none", "there are " + ", ".join(SCENARIOS))
    sizes = Sizes(
        long=_tokens(long, "--long"),
        second=_tokens(second, "--second"),
        history=_tokens(history, "--history"),
        answer=tokens,
        streams=streams,
        crowd=crowd,
    )
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
        found = list(
            measure(
                server.http,
                server.model,
                names,
                sizes,
                repeat=repeat,
                seed=seed,
                progress=console.note,
            )
        )
        return server.publish("join", found, save)


def soak(
    config: ConfigPath = None,
    url: Url = None,
    api_key: ApiKey = None,
    served: Served = None,
    clients: Annotated[int, typer.Option(min=1, metavar="N", help="Clients at once.")] = 8,
    seconds: Annotated[float, typer.Option(min=1, metavar="S", help="How long they ask.")] = 60.0,
    long: Annotated[str, typer.Option(metavar="N", help="Tokens of the longest prompt.")] = "512",
    tokens: Annotated[int, typer.Option(min=2, metavar="N", help="Most tokens of an answer.")] = 32,
    turns: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most questions of a conversation.")
    ] = 4,
    again: Annotated[
        int, typer.Option(min=0, metavar="N", help="Answers that are asked for again, alone.")
    ] = 64,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 1,
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
    """A random load: short questions, long prompts, next turns and clients that leave. Exit code 1:
    a request failed, or an answer is not the one that the same request gets alone."""
    from bench.soak import Plan
    from bench.soak import soak as play
    from strata_cli.chosen import engine_flags

    console = Console(as_json, quiet, verbose)
    plan = Plan(
        clients=clients,
        seconds=seconds,
        long=_tokens(long, "--long"),
        answer=tokens,
        turns=turns,
        again=again,
        seed=seed,
    )
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
        found, faults = play(server.http, server.model, plan, console.note)
        server.publish("soak", found, save)
    for fault in faults:
        console.warn(fault)
    return 1 if faults else 0


def _tokens(text: str, flag: str) -> int:
    found = numbers(text, flag, 16, MOST_TOKENS)
    if len(found) > 1:
        raise ConfigError(f"{flag}: {text!r} is more than one number")
    return found[0]
