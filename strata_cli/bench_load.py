"""`strata bench join` and `strata bench soak`: prompts that join, and a random load."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.errors import ConfigError
from strata_cli.bench_options import DRAWN, Wanted, suite
from strata_cli.bench_session import MOST_TOKENS, Repeat, numbers
from strata_cli.bench_target import target


@suite()
def join(
    wanted: Wanted,
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
) -> int:
    """Long prompts that join streams: the longest stop of a stream, and the time to the first token
    (TTFT) of who joins; a short question behind a long prompt; next turns of a conversation."""
    from bench.join import SCENARIOS, Sizes, measure

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
    with target(wanted) as server:
        found = list(
            measure(
                server.http,
                server.model,
                names,
                sizes,
                repeat=repeat,
                seed=seed,
                progress=wanted.console.note,
            )
        )
        return server.publish("join", found)


@suite(without=DRAWN)
def soak(
    wanted: Wanted,
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
) -> int:
    """A random load: short questions, long prompts, next turns and clients that leave. Exit code 1:
    a request failed, or an answer is not the one that the same request gets alone."""
    from bench.soak import Plan
    from bench.soak import soak as play

    plan = Plan(
        clients=clients,
        seconds=seconds,
        long=_tokens(long, "--long"),
        answer=tokens,
        turns=turns,
        again=again,
        seed=seed,
    )
    with target(wanted) as server:
        found, faults = play(server.http, server.model, plan, wanted.console.note)
        server.publish("soak", found)
    for fault in faults:
        wanted.console.warn(fault)
    return 1 if faults else 0


def _tokens(text: str, flag: str) -> int:
    found = numbers(text, flag, 16, MOST_TOKENS)
    if len(found) > 1:
        raise ConfigError(f"{flag}: {text!r} is more than one number")
    return found[0]
