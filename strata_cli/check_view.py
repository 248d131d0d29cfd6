"""`strata setup --check`: what fits this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.memory import WEIGHTS_IN_MEMORY

if TYPE_CHECKING:
    from setup.check import Check
    from setup.recommend import Subject
    from setup.wizard.situation import Situation
    from strata_cli.console import Console

DOES_NOT_FIT = "does not fit"
TITLES = (
    "family",
    "model",
    "download, GB",
    "should have RAM, GiB",
    "by the rules, with RAM and cards",
    "this version, here",
)


def check_models(situation: Situation, subjects: Sequence[Subject], console: Console) -> int:
    """A table of models, with the one that comes with Strata; 1 when this version can run none of
    `subjects` on this machine as it was asked for."""
    from setup.check import check

    models = situation.models
    small = check(situation, models.of_file(models.bundled), counts=False)
    asked = [check(situation, subject) for subject in subjects]
    checked = [small, *asked]
    fits = any(one.fits for one in asked)
    if console.json:
        documents = [one.document() for one in checked]
        console.document({"fits": fits, "models": documents})
    console.table(TITLES, [_cells(one) for one in checked], result=True)
    for one in checked:
        console.detail(one.reason)
    if not fits:
        console.result(_nothing(small))
    _explain(checked, console)
    return 0 if fits else 1


def _cells(one: Check) -> tuple[str, ...]:
    memory, row = one.memory, one.row
    if memory.fits:
        here = "; ".join((*one.cut, *one.limited)) or "fits"
    else:
        here = f"needs {_gb(memory.total_bytes)}, {_gb(memory.available_bytes)} may be used"
    size = f"{row.download_gb:.1f}" if row.download_gb >= 0.05 else f"{row.download_gb:.3f}"
    return (one.family, one.model, size, f"{row.ram_gib:.3g}", one.verdict, here)


def _nothing(small: Check) -> str:
    """The line for a machine on which nothing of what was asked about fits."""
    found = "nothing of what was asked about fits this version on this machine"
    return f"{found}; {small.model}, which comes with Strata, does" if small.fits else found


def _explain(checked: Sequence[Check], console: Console) -> None:
    """What the columns mean."""
    memory = checked[0].memory
    console.note(f"{WEIGHTS_IN_MEMORY}; {_gb(memory.available_bytes)} of this machine may be used")
    verdicts = {one.verdict for one in checked}
    if "tight" in verdicts:
        console.note("tight: runs, and leaves little memory to other programs")
    if "low memory" in verdicts:
        console.note("low memory: experts lie on the cards, or are read from the file")


def _gb(count: int) -> str:
    return f"{count / 1e9:.0f} GB"


def check_file(situation: Situation, console: Console) -> int:
    """The memory table of one file, and whether it fits as it was asked for; 1 when it does
    not."""
    from setup.check import check
    from strata_cli.plan_view import memory_document, show_memory

    subject = situation.subject
    assert subject is not None
    one = check(situation, subject)
    if console.json:
        document = {"fits": one.fits, "memory": memory_document(one.memory)}
        console.document({**document, "cut": list(one.cut), "limited": list(one.limited)})
    show_memory(one.memory, console, result=True)
    for line in (*one.cut, *one.limited):
        console.result(line)
    console.result("fits" if one.fits else DOES_NOT_FIT)
    return 0 if one.fits else 1
