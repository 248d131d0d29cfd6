"""`strata bench decode`: the speed of answers."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from strata_cli.bench_options import SERVER, Wanted, suite
from strata_cli.bench_session import (
    MOST_STREAMS,
    MOST_TOKENS,
    BenchSession,
    Repeat,
    numbers,
    shares,
)

_ROOM = 128
"""Tokens of context beside what is measured: prompts of up to 64 tokens, and drafts."""


@suite(without=(*SERVER, "slots", "context"))
def decode(
    wanted: Wanted,
    streams: Annotated[
        str, typer.Option(metavar="N,...", help="Conversations decoded together.")
    ] = "1,2,4,8",
    depth: Annotated[
        str, typer.Option(metavar="N,...", help="Tokens before each; 0: a short prompt.")
    ] = "0",
    drafts: Annotated[
        bool, typer.Option("--drafts/--no-drafts", help="Also with the draft layer's drafts.")
    ] = True,
    acceptance: Annotated[
        str | None,
        typer.Option(metavar="P,...", help="Also with drafts of which this share is right."),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(metavar="N,...", help="Also windows of so many rows that verify drafts."),
    ] = None,
    tokens: Annotated[int, typer.Option(min=2, metavar="N", help="Tokens of each.")] = 128,
    repeat: Repeat = 3,
    peer: Annotated[
        bool, typer.Option("--peer/--no-peer", help="Also llama.cpp, where it is installed.")
    ] = True,
) -> int:
    """Decode speed by conversations and their length, drafts off and on, beside llama.cpp on the
    same file. The model is loaded once."""
    from bench import verify as verifying
    from bench.decode import Point, measure, measure_peer
    from engine.startup import options_of

    console = wanted.console
    counts = numbers(streams, "--streams", 1, MOST_STREAMS)
    depths = numbers(depth, "--depth", 0, MOST_TOKENS)
    accepted = shares(acceptance, "--acceptance")
    verified = [] if verify is None else numbers(verify, "--verify", 1, 64)
    flags = wanted.flags(
        slots=max(counts), max_context=max(depths) + tokens + _ROOM if max(depths) else None
    )
    session = BenchSession.begin(wanted, flags)
    planned = session.plan.config
    fitting = [count for count in counts if count <= planned.slots]
    for count in counts:
        if count not in fitting:
            console.warn(f"{count} streams are left out: {planned.slots} slots fit in memory")
    room = planned.max_context - tokens - _ROOM
    for length in depths:
        if length > max(0, room):
            console.warn(f"depth {length} is left out: {planned.max_context} tokens of context fit")
    loaded = session.load()
    encode = loaded.tokenizer.encode
    kinds: list[bool | float] = [False]
    if loaded.pipeline.can_draft and planned.spec > 1:
        kinds += [True] * drafts + accepted
    points = [
        Point(count, length, kind)
        for length in depths
        if length <= max(0, room)
        for kind in kinds
        for count in fitting
    ]
    floor = session.floor(loaded)
    found = list(
        measure(
            loaded.pipeline,
            encode,
            options_of(planned),
            points,
            tokens=tokens,
            repeat=repeat,
            progress=console.note,
            floor=floor,
            stores=loaded.stores,
        )
    )
    rows = [count for count in verified if count <= planned.spec]
    if rows != verified:
        console.warn(f"--verify: windows have up to {planned.spec} rows; --spec N allows more")
    depth_of_verified = min(max(depths), max(0, room))
    found += verifying.measure(
        loaded.pipeline, rows, depth_of_verified, repeat=repeat, progress=console.note, floor=floor
    )
    if peer and planned.synthetic is None and planned.card is None:
        threads = os.cpu_count() or 1
        found += measure_peer(planned.model, encode, tokens=tokens, threads=threads, repeat=repeat)
    return session.finish("decode", found)
