"""Flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="More progress on stderr.")]
ConfigPath = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG",
        help="A strata-<model>.json; else the only one in this folder; else the bundled model.",
        show_default=False,
    ),
]
ModelPath = Annotated[
    Path | None, typer.Option("--model", metavar="FILE.gguf", help="Run this model file.")
]
Slots = Annotated[
    int | None,
    typer.Option("--slots", "--parallel", metavar="N", help="Conversations decoded together."),
]
Context = Annotated[
    int | None,
    typer.Option("--context", "--max-context", metavar="N", help="Tokens of one conversation."),
]
Kv = Annotated[
    str | None, typer.Option("--kv", metavar="FORMAT", help="Keys and values: int8, fp16 or f32.")
]
Spec = Annotated[
    int | None,
    typer.Option("--spec", metavar="N", help="Rows of a conversation in a window; 1: no drafts."),
]
EngineArgs = Annotated[
    str | None,
    typer.Option("--engine-args", metavar="FLAGS", help='Engine flags, as in "--prefill 128".'),
]
