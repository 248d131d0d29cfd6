"""The server that a suite of `strata bench` measures: one elsewhere, or one started for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ConfigError
from strata_cli.bench_session import BenchSession, publish

if TYPE_CHECKING:
    import httpx

    from bench.records import Circumstances, Measurement
    from strata_cli.bench_options import Wanted


@dataclass(frozen=True, slots=True)
class Target:
    """A server that answers, its model, and what publishes numbers about it: exit code 0."""

    http: httpx.Client
    model: str
    publish: Callable[[str, list[Measurement]], int]


@contextmanager
def target(wanted: Wanted) -> Iterator[Target]:
    """The server at the URL that is wanted, or `strata run` with the flags over the config file."""
    from bench.client import connect, first_model
    from strata_cli.own_server import own_server

    if wanted.url is not None:
        with connect(wanted.url, wanted.api_key) as http:
            model = wanted.served or first_model(http)
            where = _elsewhere(wanted.url, model, wanted.api_key)
            yield Target(http, model, lambda suite, found: publish(suite, found, where, wanted))
        return
    if wanted.api_key or wanted.served:
        raise ConfigError("--api-key and --served are about another server", "name it with --url")
    session = BenchSession.begin(wanted, wanted.flags())
    with own_server(wanted.config, session.plan.config) as (own, key), connect(own, key) as http:
        yield Target(http, first_model(http), session.finish)


def _elsewhere(url: str, model: str, api_key: str | None) -> Circumstances:
    """Of a server that only its address is known of; the key stays out of the records."""
    from bench.records import circumstances
    from setup.probe import ThisMachine, probe

    command = ["strata", *sys.argv[1:]]
    if api_key:
        command = [word.replace(api_key, "KEY") for word in command]
    here = probe(ThisMachine(Path.cwd()))
    return circumstances(command, here, model, {"url": url}, "unknown")
