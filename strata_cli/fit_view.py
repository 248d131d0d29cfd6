"""`strata setup --fit`: the largest context and the most slots of one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from engine.memory import WEIGHTS_IN_MEMORY

if TYPE_CHECKING:
    from engine.memory import MemoryPlan
    from setup.fit import Fit
    from setup.wizard.situation import Situation
    from strata_cli.console import Console


def show_fit(
    situation: Situation, answers: Sequence[Fit], memory: MemoryPlan, console: Console
) -> int:
    """For which model, the table, and what it does not say; 1 when not even one slot fits
    anywhere. `memory`: of this version with the recommended settings."""
    name = _name(situation)
    if console.json:
        console.document({"model": name, "fit": [asdict(one) for one in answers]})
    console.result(f"{name}{_why(situation)}")
    rows = [(one.where, *_cells(one)) for one in answers]
    console.table(("on", "largest context", "most slots"), rows, result=True)
    if not answers[0].context:
        console.result(
            f"{name} does not fit this version on this machine: it needs "
            f"{memory.total_bytes / 1e9:.0f} GB, {memory.available_bytes / 1e9:.0f} GB may be used"
        )
        console.note(f"{WEIGHTS_IN_MEMORY}; `strata setup --check` lists what fits")
    else:
        cores = situation.hardware.cpu.cores
        console.note(
            "this is what memory holds, and says nothing of speed: "
            f"all slots share {cores} core{'s' if cores > 1 else ''}, so each one more makes the "
            "others slower"
        )
    return 0 if any(one.context for one in answers) else 1


def _name(situation: Situation) -> str:
    """As `--model` takes it."""
    subject = situation.subject
    assert subject is not None
    bundled = situation.models.bundled
    return bundled.stem if subject.path == bundled else subject.row.key


def _why(situation: Situation) -> str:
    """Why this model, where nobody named one."""
    if "family" in situation.answers.taken:
        return ", which is recommended here; --model names another"
    if "size" in situation.answers.taken:
        return ", the recommended size; --model names another"
    return ""


def _cells(one: Fit) -> tuple[str, str]:
    if not one.context:
        return "none fits", "none fits"
    return str(one.context), f"{one.slots} with {one.slots_context} tokens each"
