"""Flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def given_path(text: str) -> Path:
    """Reads a path; an empty one, which would be the current folder, is wrong usage."""
    if not text.strip():
        raise typer.BadParameter("the path is empty.")
    return Path(text)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="More progress on stderr.")]
ConfigPath = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG",
        parser=given_path,
        help="A strata-<model>.json; else the only one in this folder; else the bundled model.",
        show_default=False,
    ),
]
ModelPath = Annotated[
    Path | None,
    typer.Option("--model", metavar="FILE.gguf", parser=given_path, help="Run this model file."),
]
_NAMES = {"slots": ("--slots", "--parallel"), "max_context": ("--context", "--max-context")}
"""Of the flags that have two."""


def told_names(field: str) -> str:
    """How an error calls the flag for a field of `RunConfig`: by each name that can be typed."""
    return " or ".join(_NAMES.get(field, (f"--{field.replace('_', '-')}",)))


Slots = Annotated[
    int | None,
    typer.Option(*_NAMES["slots"], metavar="N", help="Conversations decoded together."),
]
Context = Annotated[
    str | None,
    typer.Option(
        *_NAMES["max_context"], metavar="N", help="Tokens of one conversation, such as 4096 or 24k."
    ),
]
Kv = Annotated[
    str | None, typer.Option("--kv", metavar="FORMAT", help="Keys and values: int8, fp16 or f32.")
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N; auto: a card that can do it."
    ),
]
Synthetic = Annotated[
    str | None,
    typer.Option(
        "--synthetic",
        metavar="FAMILY:MIX",
        help="Random weights in place of a file, such as qwen3.8-flash-next:iq3_s.",
    ),
]
Spec = Annotated[
    int | None,
    typer.Option("--spec", metavar="N", help="Rows of a conversation in a window; 1: no drafts."),
]
EngineArgs = Annotated[
    str | None,
    typer.Option("--engine-args", metavar="FLAGS", help='Engine flags, as in "--prefill 128".'),
]
