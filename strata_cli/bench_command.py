"""`strata bench`: measure this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import ConfigError
from strata_cli.bench_decode import decode
from strata_cli.bench_load import join, soak
from strata_cli.bench_options import DRAWN, SERVER, Wanted, suite
from strata_cli.bench_pairs import compare, pairs
from strata_cli.bench_plot import plot
from strata_cli.bench_serve import serve
from strata_cli.bench_session import (
    MOST_STREAMS,
    MOST_TOKENS,
    BenchSession,
    Repeat,
    numbers,
)
from strata_cli.console import Console
from strata_cli.options import Synthetic, given_path

if TYPE_CHECKING:
    from bench.records import Measurement
    from engine.ops import Ops

bench = typer.Typer(name="bench", help="Measure this machine.", rich_markup_mode=None)

_ROOM = 128
"""Tokens of context beside what is measured."""


@bench.callback(invoke_without_command=True)
def _suites(
    context: typer.Context,
    synthetic: Synthetic = None,
    write_gguf: Annotated[
        Path | None,
        typer.Option(
            "--write-gguf",
            metavar="FILE",
            parser=given_path,
            help="Write the random weights of --synthetic as a file, for another program.",
        ),
    ] = None,
) -> None:
    if context.invoked_subcommand is not None:
        return
    if write_gguf is not None:
        _write(synthetic, write_gguf)
        raise typer.Exit
    print(context.get_help(), file=sys.stderr)
    raise typer.Exit(2)


def _write(synthetic: str | None, path: Path) -> None:
    from engine.synthetic import open_synthetic, write_synthetic

    if synthetic is None:
        raise ConfigError(
            "--write-gguf writes random weights, and --synthetic names none",
            "for example --synthetic qwen3.8-flash-next:iq3_s",
        )
    if path.exists():
        raise ConfigError(f"{path}: is there already", "name another file")
    console = Console()
    gguf = open_synthetic(synthetic)
    size = sum(tensor.nbytes for tensor in gguf.tensors.values())
    console.note(f"writing {size / 1e9:.1f} GB to {path}")
    write_synthetic(gguf, path)


bench.command()(decode)
bench.command()(serve)
bench.command()(join)
bench.command()(soak)
bench.command()(pairs)
bench.command()(compare)
bench.command()(plot)


@bench.command()
@suite(without=(*SERVER, "slots", "context", "spec"))
def prefill(
    wanted: Wanted,
    tokens: Annotated[
        str, typer.Option(metavar="N,...", help="Lengths of prompts, such as 512,4k,32k.")
    ] = "512,4k",
    repeat: Repeat = 3,
) -> int:
    """Prompt speed by length, until the first token of the answer. The model is loaded once."""
    from bench.prefill import measure
    from engine.startup import options_of

    console = wanted.console
    lengths = numbers(tokens, "--tokens", 1, MOST_TOKENS)
    flags = wanted.flags(slots=1, max_context=max(16, max(lengths) + 1))
    session = BenchSession.begin(wanted, flags)
    planned = session.plan.config
    fitting = [length for length in lengths if length < planned.max_context]
    for length in lengths:
        if length not in fitting:
            console.warn(f"{length} tokens are left out: the context has {planned.max_context}")
    if not fitting:
        raise ConfigError(
            f"--tokens: no length fits in the context of {planned.max_context} tokens",
            "name a shorter one",
        )
    loaded = session.load()
    found = measure(
        loaded.pipeline,
        loaded.tokenizer.encode,
        options_of(planned),
        fitting,
        repeat=repeat,
        progress=console.note,
        floor=session.floor(loaded),
    )
    return session.finish("prefill", list(found))


@bench.command()
@suite(without=(*SERVER, *DRAWN, "slots", "context", "spec"))
def kernels(
    wanted: Wanted,
    rows: Annotated[
        str, typer.Option(metavar="N,...", help="Rows of the window, one a conversation.")
    ] = "1,8",
    depth: Annotated[int, typer.Option(min=0, metavar="N", help="Tokens before each.")] = 1024,
) -> int:
    """Every operator of a window by itself, beside the time in which its weights are copied. On a
    card only."""
    from bench.floor import copy_bytes_per_s
    from bench.kernels import Recorder, measure, window_calls

    console = wanted.console
    counts = numbers(rows, "--rows", 1, MOST_STREAMS)
    flags = wanted.flags(slots=max(counts), max_context=depth + _ROOM, spec=1)
    session = BenchSession.begin(wanted, flags)
    if session.plan.config.card is None:
        raise ConfigError(
            "bench kernels measures a card, and this model runs on the processor",
            "--device cuda says why no card is used",
        )
    recorders: list[Recorder] = []

    def recorded(ops: Ops) -> Ops:
        recorders.append(Recorder(ops))
        return recorders[0].ops

    loaded = session.load(recorded)
    speed = copy_bytes_per_s(loaded.pipeline.device)
    found: list[Measurement] = []
    for count in counts:
        if count <= session.plan.config.slots:
            calls = window_calls(recorders[0], loaded.pipeline.trunk, count, depth)
            found += measure(calls, loaded.config, count, speed, console.note)
    return session.finish("kernels", found)
