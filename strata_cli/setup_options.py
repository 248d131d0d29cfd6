"""The flags of `strata setup`, and how their words are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from engine.errors import ConfigError
from strata_cli.options import given_path

Cards = tuple[int, ...] | Literal["all"]


def one_of(*words: str) -> Callable[[str], str]:
    """Reads one of these words; typer tells the others as wrong usage."""

    def read(text: str) -> str:
        if text not in words:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(words)}.")
        return text

    return read


def word(words: str, about: str, name: str | None = None) -> Any:
    """An option that takes one of the words in "a|b|c"."""
    names = () if name is None else (name,)
    return typer.Option(*names, metavar=words, parser=one_of(*words.split("|")), help=about)


def read_cards(gpu: str | None, gpus: str | None) -> Cards | None:
    """What `--gpu N` or `--gpus 0,1` (or all) ask for. `ConfigError` for anything else."""
    if gpu is not None and gpus is not None:
        raise ConfigError(f"--gpu {gpu} and --gpus {gpus} are both given", "give one of them")
    flag, text = ("--gpu", gpu) if gpu is not None else ("--gpus", gpus)
    if text is None:
        return None
    if text.strip().lower() == "all" and flag == "--gpus":
        return "all"
    words = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,4}", part) for part in words):
        example = "--gpus 0,1 or --gpus all" if flag == "--gpus" else "--gpu 0"
        raise ConfigError(f"{flag}: {text!r} is not a list of GPU numbers", f"as in {example}")
    return tuple(int(part) for part in words)


Family = Annotated[
    str | None, typer.Option(metavar="NAME", help="A family of models, such as qwen.")
]
Model = Annotated[
    str | None,
    typer.Option(metavar="SIZE|FILE", help="A size such as IQ3_S, or a GGUF file."),
]
ModelsDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--models-dir",
        metavar="DIR",
        parser=given_path,
        help="Where models lie; may be repeated. Downloads go to the first.  [default: models]",
        show_default=False,
    ),
]
Download = Annotated[
    bool | None,
    typer.Option("--download/--no-download", help="Fetch the model if it is not here."),
]
RopeScaling = Annotated[str | None, word("none|yarn|linear", "Method above the trained context.")]
RopeScale = Annotated[float | None, typer.Option(metavar="F", help="Its factor.")]
Kv = Annotated[
    str | None,
    typer.Option(metavar="FORMAT", help="Keys and values: int8, fp16, k8v4, q4_0 or f32."),
]
KvStreaming = Annotated[
    str | None, word("auto|on|off", "Keep most keys and values outside the card.")
]
Backend = Annotated[str | None, word("cuda|hip|cpu", "What computes.")]
GpuOne = Annotated[str | None, typer.Option("--gpu", metavar="N", help="Use this card.")]
GpuMany = Annotated[
    str | None, typer.Option("--gpus", metavar="N,N|all", help="Share a model by these cards.")
]
LayerSplit = Annotated[
    str | None,
    typer.Option(metavar="auto|N,N", help="First layer of each later card."),
]
LowRam = Annotated[
    str | None, word("auto|on|off|resident|mmap", "What to do with too little memory.")
]
Budget = Annotated[
    int | None,
    typer.Option("--resident-budget-gib", min=1, metavar="N", help="Memory for experts."),
]
Reserve = Annotated[
    int | None,
    typer.Option("--vram-reserve-mib", min=0, metavar="N", help="Memory of a card to leave free."),
]
DraftVocab = Annotated[str | None, word("cjk|cyrillic|fr|en", "Tokens that may be drafted.")]
Vision = Annotated[str | None, word("off|gpu|cpu", "Read images, and where.")]
PoolWorkers = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Threads that compute experts.")
]
Thinking = Annotated[
    bool | None,
    typer.Option("--thinking/--instruct", help="Sampling for answers with thinking or without."),
]
Host = Annotated[str | None, typer.Option(help="Where the server listens.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Its port.")]
ApiKey = Annotated[str | None, typer.Option(help="What clients must send.")]
Browser = Annotated[
    bool | None, typer.Option("--browser/--no-browser", help="Open the page after the start.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Accept what is recommended.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the config, write nothing.")]
Check = Annotated[bool, typer.Option("--check", help="Say what fits this machine and stop.")]
Explain = Annotated[bool, typer.Option("--explain", help="Every reason, and memory tables.")]
FitFlag = Annotated[
    bool, typer.Option("--fit", help="Say the largest context and most slots, and stop.")
]
Calibrate = Annotated[
    bool, typer.Option("--calibrate", help="Measure settings here and keep what gains over 3%.")
]
Reset = Annotated[
    bool,
    typer.Option("--reset", help="Forget what the config that is there says, set or measured."),
]
Probe = Annotated[
    Path | None, typer.Option(metavar="FILE", parser=given_path, help="Use a recorded machine.")
]
SaveProbe = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", parser=given_path, help="Record this machine and stop; -: on stdout."
    ),
]
