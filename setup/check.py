"""Whether a model fits: by the rules with memory and cards, and this version on this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from engine.memory import MemoryPlan
from engine.resolve import make_plan
from setup.models.catalogue import ModelRow
from setup.recommend import Recommendation, Subject
from setup.rules.size import size_verdict
from setup.wizard.situation import Situation

BUNDLED = "bundled"
"""Stands for the family of the model that comes with Strata."""


@dataclass(frozen=True, slots=True)
class Check:
    """`verdict` and `reason` are the rules', `memory` is this version's engine's."""

    family: str
    model: str
    row: ModelRow
    verdict: str
    reason: str
    memory: MemoryPlan
    cut: tuple[str, ...]
    """What was asked for and does not fit in memory, in words."""
    limited: tuple[str, ...]
    """What was asked for and the model does not allow, in words."""
    counts: bool = True
    """Whether it was asked about; the small model is shown beside others in any case."""

    @property
    def fits(self) -> bool:
        """Whether this version can run it on this machine as it was asked for."""
        return self.memory.fits and not self.cut

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "family": self.family,
            "model": self.model,
            "download_gb": self.row.download_gb,
            "ram_gib": self.row.ram_gib,
            "verdict": self.verdict,
            "reason": self.reason,
            "this_version": {
                "fits": self.fits,
                "needed_bytes": self.memory.total_bytes,
                "available_bytes": self.memory.available_bytes,
                "cut": list(self.cut),
                "limited": list(self.limited),
            },
        }


def check(situation: Situation, subject: Subject, *, counts: bool = True) -> Check:
    """One model. Raises `ConfigError` for an answer that cannot work with any model."""
    # These are about one model; in a table they would refuse another.
    said_about = situation if counts else situation.unasked()
    flags = replace(said_about.flags, rope_scaling=None, rope_scale=None, layer_split=None)
    situation = replace(said_about, flags=flags)
    row, ram = subject.row, situation.hardware.ram_gib
    verdict, reason = size_verdict(row, ram, situation.card_sizes(row))
    found = situation.planned(subject)
    bundled = subject.path == situation.models.bundled
    cut, limited = shortfall(situation, subject, found)
    return Check(
        family=BUNDLED if bundled else row.family,
        model=situation.models.bundled.stem if bundled else row.key,
        row=row,
        verdict=verdict,
        reason=reason,
        memory=found.memory,
        cut=cut,
        limited=limited,
        counts=counts,
    )


def shortfall(
    situation: Situation, subject: Subject, found: Recommendation
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What was asked for and is served with less: for want of memory, and by the model's limit."""
    asked, longest = situation.asked, subject.info.train_context
    run = replace(found.run, slots=asked.parallel)
    plan = make_plan(run, subject.info, situation.hardware)
    cut, limited = [], []
    if asked.parallel is not None and plan.config.slots < asked.parallel:
        cut.append(f"{plan.config.slots} of {asked.parallel} slots fit in memory")
    if asked.context is not None:
        if plan.config.max_context < min(asked.context, longest):
            served = plan.config.max_context
            cut.append(f"{served} of {asked.context} tokens of context fit in memory")
        if longest < asked.context:
            limited.append(f"context {asked.context}: the model allows {longest}")
    return tuple(cut), tuple(limited)
