"""`strata bench pairs` and `strata bench compare`: two settings beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import ConfigError
from strata_cli.bench_options import DRAWN, SERVER, Wanted, suite
from strata_cli.bench_session import MOST_CLIENTS, BenchSession, numbers
from strata_cli.console import Console
from strata_cli.options import Json, given_path

if TYPE_CHECKING:
    from bench.compare import Change
    from bench.serve import Load


@suite(without=(*SERVER, *DRAWN, "save", "engine_args"))
def pairs(
    wanted: Wanted,
    before: Annotated[
        str, typer.Option("--before", metavar="FLAGS", help="Engine flags of one arm.")
    ] = "",
    after: Annotated[
        str, typer.Option("--after", metavar="FLAGS", help="Of the other: `--window-rows 16`.")
    ] = "",
    count: Annotated[
        int, typer.Option("--pairs", min=2, metavar="N", help="Fresh servers of each arm.")
    ] = 5,
    clients: Annotated[
        str, typer.Option(metavar="N,...", help="Clients that ask at the same time.")
    ] = "1,4",
    words: Annotated[int, typer.Option(min=2, metavar="N", help="Words of a question.")] = 100,
    tokens: Annotated[
        int, typer.Option(min=2, metavar="N", help="Most tokens of an answer.")
    ] = 128,
    seed: Annotated[int, typer.Option(help="Of the questions.")] = 1,
) -> int:
    """Two sets of engine flags in turn, each time on a fresh server: what clients see of them, how
    many pairs are faster, and the 95% interval of the ratio of medians."""
    from bench.compare import compare as changes
    from bench.serve import Load

    console = wanted.console
    if before.split() == after.split():
        raise ConfigError("--before and --after say the same", 'for example --after "--spec 1"')
    counts = numbers(clients, "--clients", 1, MOST_CLIENTS)
    arms = {"before": before, "after": after}
    sessions = {
        arm: BenchSession.begin(wanted, wanted.flags(engine_args=flags))
        for arm, flags in arms.items()
    }
    runs: dict[str, dict[str, dict[str, Any]]] = {arm: {} for arm in arms}
    for number in range(count):
        # In turn, and the other way round each time: a machine that warms up favours nobody.
        for arm in tuple(arms) if number % 2 == 0 else tuple(arms)[::-1]:
            console.note(f"pair {number + 1} of {count}, {arm}: {arms[arm] or 'as it is'}")
            loads = [Load(each, 1, words, tokens, seed + number) for each in counts]
            _add(runs[arm], _asked(sessions[arm], loads))
    _show(changes(runs["before"], runs["after"]), console, {"arms": arms})
    return 0


def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", parser=given_path)],
    after: Annotated[Path, typer.Argument(metavar="AFTER", parser=given_path)],
    as_json: Json = False,
) -> int:
    """Two saved runs of a suite: the ratio of medians with its 95% interval, and how many samples
    are faster. A run is what --json printed, or a file of records, whose last ones count."""
    from bench.compare import compare as changes
    from bench.compare import read_run

    found = list(changes(read_run(before), read_run(after)))
    if not found:
        raise ConfigError(f"{before} and {after} have no metric in common")
    _show(found, Console(as_json), {})
    return 0


def _asked(
    session: BenchSession, loads: list[Load]
) -> Iterator[tuple[str, str, tuple[float, ...]]]:
    """Metric, unit and samples of each load on a server of its own."""
    from bench.client import connect, first_model
    from bench.serve import measure
    from strata_cli.own_server import own_server

    with (
        own_server(session.wanted.config, session.plan.config) as (url, key),
        connect(url, key) as http,
    ):
        for one in measure(http, first_model(http), loads, session.wanted.console.note):
            yield one.metric, one.unit, one.samples


def _add(
    run: dict[str, dict[str, Any]], found: Iterable[tuple[str, str, tuple[float, ...]]]
) -> None:
    for metric, unit, samples in found:
        record = run.setdefault(metric, {"unit": unit, "samples": []})
        record["samples"] += samples


def _show(found: Iterable[Change], console: Console, more: Mapping[str, Any]) -> None:
    from bench.tables import change_table

    changes = list(found)
    if console.json:
        console.document({**more, "changes": [asdict(change) for change in changes]})
    console.table(*change_table(changes), result=True)
