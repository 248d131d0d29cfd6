"""The server that a suite of `strata bench` measures: one elsewhere, or one started for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import ConfigError
from strata_cli.bench_session import BenchSession, publish
from strata_cli.console import Console

if TYPE_CHECKING:
    import httpx

    from bench.records import Circumstances, Measurement
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


@dataclass(frozen=True, slots=True)
class Target:
    """A server that answers, its model, and what publishes numbers about it (suite, numbers,
    whether to save): exit code 0."""

    http: httpx.Client
    model: str
    publish: Callable[[str, list[Measurement], bool], int]


@contextmanager
def target(
    config: Path | None,
    flags: RunConfig,
    url: str | None,
    api_key: str | None,
    served: str | None,
    console: Console,
) -> Iterator[Target]:
    """The server at `url`, or `strata run` with `flags` over the config file."""
    from bench.client import connect, first_model
    from strata_cli.own_server import own_server

    if url is not None:
        with connect(url, api_key) as http:
            model = served or first_model(http)
            where = _elsewhere(url, model, api_key)
            yield Target(
                http,
                model,
                lambda suite, found, save: publish(suite, found, where, console, save=save),
            )
        return
    if api_key or served:
        raise ConfigError("--api-key and --served are about another server", "name it with --url")
    session = BenchSession.begin(config, flags, console)
    with own_server(config, session.plan.config) as (own, key), connect(own, key) as http:
        yield Target(
            http,
            first_model(http),
            lambda suite, found, save: session.finish(suite, found, save=save),
        )


def _elsewhere(url: str, model: str, api_key: str | None) -> Circumstances:
    """Of a server that only its address is known of; the key stays out of the records."""
    from bench.records import circumstances
    from setup.probe import ThisMachine, probe

    command = ["strata", *sys.argv[1:]]
    if api_key:
        command = [word.replace(api_key, "KEY") for word in command]
    here = probe(ThisMachine(Path.cwd()))
    return circumstances(command, here, model, {"url": url}, "unknown")
