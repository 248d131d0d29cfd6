"""`strata setup --check`: what fits this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.memory import MemoryPlan
    from setup.models.catalogue import ModelRow
    from setup.recommend import Recommendation
    from setup.wizard.situation import Situation
    from strata_cli.console import Console

DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True, slots=True)
class Checked:
    """A model of the catalogue on a machine: the rules' word, and this version's memory."""

    row: ModelRow
    verdict: str
    reason: str
    memory: MemoryPlan

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "family": self.row.family,
            "model": self.row.key,
            "download_gb": self.row.download_gb,
            "ram_gib": self.row.ram_gib,
            "verdict": self.verdict,
            "reason": self.reason,
            "this_version": {
                "fits": self.memory.fits,
                "needed_bytes": self.memory.total_bytes,
                "available_bytes": self.memory.available_bytes,
            },
        }


def check_models(situation: Situation, rows: Sequence[ModelRow], console: Console) -> int:
    """A table of models; 1 when the rules find none that fits."""
    from setup.rules.size import size_verdict

    checked = []
    for row in rows:
        verdict, reason = size_verdict(row, situation.hardware.ram_gib, situation.card_sizes(row))
        memory = situation.planned(situation.models.of_row(row)).memory
        checked.append(Checked(row, verdict, reason, memory))
    fits = any(one.verdict != DOES_NOT_FIT for one in checked)
    if console.json:
        document = {"fits": fits, "models": [one.document() for one in checked]}
        console.document(document)
    console.table(
        ("family", "model", "GB", "RAM", "by memory and cards", "this version"),
        [_cells(one) for one in checked],
        result=True,
    )
    for one in checked:
        console.detail(one.reason)
    _summary(checked, fits, console)
    return 0 if fits else 1


def _cells(one: Checked) -> tuple[str, ...]:
    memory = one.memory
    here = "fits" if memory.fits else f"needs {memory.total_bytes / 1e9:.0f} GB"
    row = one.row
    return (
        row.family,
        row.key,
        f"{row.download_gb:.1f}",
        f"{row.ram_gib:g}",
        one.verdict,
        here,
    )


def _summary(checked: Sequence[Checked], fits: bool, console: Console) -> None:
    if not fits:
        console.result("nothing fits; strata-tiny, which comes with Strata, runs on any machine")
    available = checked[0].memory.available_bytes / 1e9
    console.note(
        "this version computes on the processor, with the whole model in memory; "
        f"{available:.0f} GB may be used for it"
    )


def check_file(found: Recommendation, console: Console) -> int:
    """The memory table of one file, and whether it fits; 1 when it does not."""
    from strata_cli.plan_view import memory_document, show_memory

    memory = found.memory
    if console.json:
        console.document({"fits": memory.fits, "memory": memory_document(memory)})
    show_memory(memory, console, result=True)
    console.result("fits" if memory.fits else DOES_NOT_FIT)
    return 0 if memory.fits else 1
