"""`strata check-exactness`: the same bits, however a conversation was computed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import ConfigError
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
    Synthetic,
    Verbose,
)

if TYPE_CHECKING:
    from bench.exactness import Report
    from engine.sampling import Sampling


def check_exactness(
    config: ConfigPath = None,
    model: ModelPath = None,
    suite: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Which suites; else all of them.")
    ] = None,
    max_new: Annotated[int, typer.Option(min=2, metavar="N", help="Tokens of an answer.")] = 48,
    long: Annotated[
        bool, typer.Option("--long", help="Also a prompt of a quarter of the context.")
    ] = False,
    keys: Annotated[
        str | None,
        typer.Option(metavar="K=V,...", help="Sampling keys; else a greedy and a sampled set."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random chunks.")] = 1,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Check a running server: clients leave it in mid-answer."),
    ] = None,
    api_key: Annotated[str | None, typer.Option(metavar="KEY", help="Of that server.")] = None,
    device: Device = None,
    synthetic: Synthetic = None,
    slots: Slots = None,
    context: Context = None,
    kv: Kv = None,
    engine_args: EngineArgs = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Compare tokens and the hash of every row's logits over all ways to compute them.

    Exit code 0: all equal. 1: something differs; the first difference is named.
    """
    from bench.exactness import check, choose_suites
    from bench.texts import GREEDY, SAMPLED, texts
    from engine.startup import load_planned, options_of
    from strata_cli.chosen import choose, engine_flags

    console = Console(as_json, quiet, verbose)
    if url is not None:
        return _check_server(url, api_key, suite, max_new, console)
    suites = choose_suites(suite)
    chosen_keys = (GREEDY, SAMPLED) if keys is None else (_keys(keys),)
    flags = engine_flags(
        model=model,
        synthetic=synthetic,
        device=device,
        slots=slots,
        max_context=context,
        kv=kv,
        engine_args=engine_args,
    )
    chosen = choose(config, flags, console)
    chosen.check_room()
    plan = chosen.plan
    console.note(f"{plan.config.model.name}, {plan.config.slots} slots")
    spec = max(8, plan.config.spec)
    loaded = load_planned(plan.config, spec=spec)
    pipeline, encode = loaded.pipeline, loaded.tokenizer.encode
    played = texts(
        encode, max_new=max_new, context=pipeline.max_context, long=long, keys=chosen_keys
    )
    report = check(
        pipeline,
        encode,
        played,
        options_of(plan.config),
        suites=suites,
        seed=seed,
        drafts=spec - 1,
        experts=None if loaded.stores is None else loaded.stores.counts,
        progress=console.note,
    )
    _show(report, console)
    return 0 if report.equal else 1


def _check_server(
    url: str, api_key: str | None, suite: str | None, max_new: int, console: Console
) -> int:
    from bench.client import connect
    from bench.early_close import MEANING, SUITE, early_close

    if suite not in (None, SUITE):
        raise ConfigError(f"--suite: {suite!r} cannot be played over HTTP", f"there is {SUITE}")
    console.note(f"{SUITE}: {MEANING}")
    with connect(url, api_key) as http:
        found = early_close(http, tokens=max_new)
    if console.json:
        console.document({"equal": not found.difference, "suite": SUITE, **asdict(found)})
    else:
        state = "DIFFERENT" if found.difference else "equal"
        counts = f"{found.answers} answers, {found.left} clients left"
        console.result(f"{SUITE:12} {state}  {counts}, {found.seconds:.1f} s")
        if found.difference:
            console.result(f"first difference: {found.difference}")
    return 1 if found.difference else 0


def _keys(text: str) -> Sampling:
    """`temperature=0.8,seed=3` as sampling parameters."""
    from engine.sampling import Sampling

    values: dict[str, Any] = {}
    for pair in text.split(","):
        name, found, value = pair.partition("=")
        name = name.strip()
        if not found or name not in Sampling.__dataclass_fields__:
            known = ", ".join(Sampling.__dataclass_fields__)
            raise ConfigError(f"--keys: {pair!r} is not key=value", f"keys are {known}")
        try:
            whole = Sampling.__dataclass_fields__[name].type == "int"
            values[name] = int(value) if whole else float(value)
        except ValueError:
            raise ConfigError(f"--keys: {name}: {value!r} is not a number") from None
    if values.get("temperature", 0) > 0 and not values.get("seed"):
        values["seed"] = 1  # 0 would be another seed in every run
    return Sampling(**values)


def _show(report: Report, console: Console) -> None:
    from bench.exactness import FEWEST_DISTINCT

    if console.json:
        document = asdict(report)
        console.document({"equal": report.equal, "rows": report.rows, **document})
        return
    for one in report.suites:
        state = "equal" if one.difference is None else "DIFFERENT"
        console.result(
            f"{one.suite:12} {state}  {one.texts} texts, {one.rows} rows, {one.seconds:.1f} s"
        )
    for name, why in report.left_out.items():
        console.result(f"{name:12} left out: {why}")
    for name in report.weak:
        console.result(
            f"does not count: {name!r} has {report.distinct[name]} distinct tokens, "
            f"{FEWEST_DISTINCT} are needed"
        )
    different = [one.difference for one in report.suites if one.difference is not None]
    if different:
        console.result(f"first difference: {different[0]}")
    verdict = "all equal" if report.equal else "NOT exact" if different else "NOT proven"
    console.result(f"{verdict}: {report.rows} rows compared in {report.seconds:.1f} s")
    console.result(f"tokens and logits of the texts alone: {report.digest}")
