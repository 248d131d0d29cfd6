"""Shows what setup found and what it would write."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.card_memory import CardPlan
    from engine.hardware import Gpu, Hardware
    from setup.recommend import Recommendation
    from strata_cli.console import Console

GIB = 1 << 30


def show_machine(hardware: Hardware, backends: Collection[str], console: Console) -> None:
    """Processor, memory, disk and cards; `backends` are those of this version."""
    cpu = hardware.cpu
    features = [name for name, there in (("AVX2", cpu.avx2), ("AVX-512", cpu.avx512)) if there]
    console.note(f"processor  {', '.join([cpu.name, f'{cpu.cores} cores', *features])}")
    free = hardware.ram_available_bytes / GIB
    free_gb = hardware.ram_available_bytes / 1e9
    limit = ", limited by the container" if hardware.memory_limit_bytes else ""
    both = f"{free:.1f} GiB ({free_gb:.1f} GB) free"
    console.note(f"memory     {hardware.ram_gib:.1f} GiB, {both}{limit}")
    console.note(f"disk       {hardware.disk_free_bytes / 1e9:.0f} GB free{_disk(hardware)}")
    for gpu in hardware.gpus:
        console.note(f"GPU {gpu.index:<6} {_card(gpu)}")
    if not hardware.gpus:
        console.note("GPU        none")
    elif not set(backends) & {gpu.backend for gpu in hardware.gpus}:
        console.note("           this version uses none of these GPUs")


def _disk(hardware: Hardware) -> str:
    kinds = (("it turns", hardware.disk_rotational), ("WSL", hardware.wsl))
    return "".join(f", {name}" for name, there in kinds if there)


def _card(gpu: Gpu) -> str:
    driver = f"driver {gpu.driver}" if gpu.driver else ""
    shared = f"and {gpu.shared_bytes / GIB:.1f} GiB shared" if gpu.shared_bytes else ""
    integrated = "integrated" if gpu.integrated else ""
    words = (f"{gpu.name}, {gpu.vram_gib:.1f} GiB", shared, gpu.arch, driver, integrated)
    return ", ".join(word for word in words if word).replace(", and", " and")


def show_notes(document: dict[str, Any], console: Console, *, explain: bool) -> None:
    """Reasons when they are wanted, notes in any case."""
    if explain:
        for reason in document["reasons"]:
            console.note(f"because: {reason}")
    for note in document["notes"]:
        console.note(f"note: {note}")


def show_memory_tables(found: Recommendation, console: Console) -> None:
    """What the engine of this version takes, and what the rules would put on each card."""
    from strata_cli.plan_view import show_memory

    show_memory(found.memory, console, result=False)
    for card in found.cards:
        _show_card(card, console)


def _show_card(card: CardPlan, console: Console) -> None:
    first, end = card.layers
    layers = f"layers {first} to {end - 1}" if end > first else "no layer"
    rows = [(what, f"{count / 1e9:.3f} GB") for what, count in card.rows()]
    console.note("")
    console.table((f"{card.name}, {layers}, by the rules", "bytes"), rows, result=False)


def show_changes(name: str, changes: Sequence[str], *, is_new: bool, console: Console) -> None:
    """The lines of a new config, or what changes in the one that is there."""
    console.note("")
    if not changes:
        console.note(f"{name}: nothing changes")
        return
    console.note(f"{name}: {'new' if is_new else 'changes'}")
    for line in changes:
        console.note(f"  {line}")
