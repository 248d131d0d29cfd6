"""`strata bench serve`: clients of a server."""

from __future__ import annotations

from typing import Annotated

import typer

from strata_cli.bench_options import Wanted, suite
from strata_cli.bench_session import MOST_CLIENTS, numbers
from strata_cli.bench_target import target


@suite()
def serve(
    wanted: Wanted,
    clients: Annotated[
        str, typer.Option(metavar="N,...", help="Clients that ask at the same time.")
    ] = "1,8",
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Questions of each client.")] = 3,
    words: Annotated[int, typer.Option(min=2, metavar="N", help="Words of a question.")] = 100,
    tokens: Annotated[
        int, typer.Option(min=2, metavar="N", help="Most tokens of an answer.")
    ] = 128,
    seed: Annotated[int, typer.Option(help="Of the questions.")] = 1,
) -> int:
    """Clients of a server over HTTP: tokens per second of all of them, the time to the first token
    (TTFT) and between two tokens (TPOT), by percentiles of a round."""
    from bench.serve import Load, measure

    counts = numbers(clients, "--clients", 1, MOST_CLIENTS)
    loads = [Load(count, rounds, words, tokens, seed) for count in counts]
    with target(wanted) as server:
        found = list(measure(server.http, server.model, loads, wanted.console.note))
        return server.publish("serve", found)
