"""`strata setup`: probe, choose, write the config."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import ConfigError
from strata_cli.console import Console
from strata_cli.options import Context, Json, Kv, Quiet, Slots, Verbose

if TYPE_CHECKING:
    from engine.hardware import Hardware
    from setup.recommend import Recommendation


def setup(
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="FILE.gguf", help="The model; else the bundled one."),
    ] = None,
    context: Context = None,
    kv: Kv = None,
    parallel: Slots = None,
    host: Annotated[str | None, typer.Option(help="Where the server listens.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Its port.")] = None,
    api_key: Annotated[str | None, typer.Option(help="What clients must send.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Accept what is recommended.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print, write nothing.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only say whether it fits.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print the memory table.")] = False,
    probe: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use a recorded machine.")
    ] = None,
    save_probe: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record this machine and stop.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Probe this machine, choose settings and write strata-<model>.json."""
    from engine.model_info import read_model_info
    from setup.models import find_model
    from setup.recommend import Asked, recommend
    from strata_cli.chosen import engine_flags

    console = Console(as_json, quiet, verbose)
    hardware = _hardware(probe)
    _show_hardware(hardware, console)
    if save_probe is not None:
        return _save_probe(save_probe, hardware, console)
    flags = engine_flags(max_context=context, kv=kv, slots=parallel)
    here = Path.cwd()
    info = read_model_info(find_model(model, here))
    asked = Asked(flags.max_context, flags.kv, flags.slots, host, port, api_key)
    found = recommend(info, hardware, asked, here)
    if check:
        return _check(found, console)
    document = _merged(found, here)
    _show(document, found, console, explain or verbose)
    if dry_run:
        return _print_dry_run(document, console)
    _confirm(yes)
    return _write(document, here, console)


def _hardware(recorded: Path | None) -> Hardware:
    from engine.hardware import Hardware
    from setup.config_text import read_json
    from setup.probe import ThisMachine
    from setup.probe import probe as probe_machine

    if recorded is not None:
        return Hardware.from_json(read_json(recorded))
    return probe_machine(ThisMachine(Path.cwd()))


def _show_hardware(hardware: Hardware, console: Console) -> None:
    console.note(
        f"machine: {hardware.cpu.name}, {hardware.cpu.cores} cores, "
        f"{hardware.ram_bytes / 2**30:.1f} GiB of memory "
        f"({hardware.ram_available_bytes / 2**30:.1f} free), {len(hardware.gpus)} GPUs"
    )
    for gpu in hardware.gpus:
        console.note(f"GPU {gpu.index}: {gpu.name}, {gpu.vram_bytes / 2**30:.1f} GiB; not used yet")


def _save_probe(path: Path, hardware: Hardware, console: Console) -> int:
    from setup.config_write import write_config

    write_config(path, hardware.to_json())
    if console.json:
        console.document(hardware.to_json())
    console.result(str(path))
    return 0


def _check(found: Recommendation, console: Console) -> int:
    from strata_cli.plan_view import memory_document, show_memory

    if console.json:
        console.document({"fits": found.memory.fits, "memory": memory_document(found.memory)})
    show_memory(found.memory, console, result=True)
    console.result("fits" if found.memory.fits else "does not fit")
    return 0 if found.memory.fits else 1


def _merged(found: Recommendation, folder: Path) -> dict[str, Any]:
    """What `--json` prints: the config merged with the one that is there, and why."""
    from setup.config_merge import merge
    from setup.config_text import read_json
    from setup.models import model_tag

    path = folder / f"strata-{model_tag(Path(found.config['model']))}.json"
    old = read_json(path) if path.exists() else {}
    merged = merge(old, found.config, folder)
    return {
        "config": dict(merged.config),
        "recommendation": {
            "parallel": found.parallel,
            "layer_split": None,
            "context": found.context,
            "kv": found.kv,
            "kv_resident": None,
            "low_ram": False,
            "profile": None,
        },
        "reasons": list(found.reasons),
        "notes": [*merged.dropped, *merged.replaced],
        "path": str(path),
    }


def _show(document: dict[str, Any], found: Recommendation, console: Console, explain: bool) -> None:
    from strata_cli.plan_view import show_memory

    for reason in document["reasons"]:
        console.note(reason)
    for note in document["notes"]:
        console.warn(note)
    if explain:
        show_memory(found.memory, console, result=False)


def _print_dry_run(document: dict[str, Any], console: Console) -> int:
    if console.json:
        console.document(document)
    console.result(json.dumps(document["config"], indent=1, ensure_ascii=False))
    return 0


def _confirm(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "setup would ask whether to write this, and there is no terminal",
            "--yes accepts what is recommended, --dry-run only prints it",
        )
    if not typer.confirm("Write this?", default=True, err=True):
        raise KeyboardInterrupt


def _write(document: dict[str, Any], folder: Path, console: Console) -> int:
    from setup.config_write import write_config

    path = Path(document["path"])
    changed = write_config(path, document["config"])
    if console.json:
        console.document(document)
    console.result(path.name)
    state = "written" if changed else "already as it should be"
    console.note(f"{path.name}: {state}; start it with `strata run {path.name}`")
    return 0
