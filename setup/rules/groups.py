"""Groups of slots that travel a pipeline of cards, and what goes with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """How the slots travel: `groups` 1 is one window through card after card."""

    groups: int
    batch_mtp: bool
    adapt_async: bool
    notes: tuple[str, ...]
    piped_drafts: int = 0
    """Drafts of a slot inside the pipeline."""


def batch_groups(slots: int, stages: int) -> int:
    """The most groups that divide `slots` and give every one of `stages` cards at most one."""
    most = max(1, min(slots, stages))
    return next(groups for groups in range(most, 0, -1) if slots % groups == 0)


def plan_groups(
    *,
    slots: int,
    stages: int,
    asked: int | Literal["auto"] | None,
    batch_mtp: bool,
    adapt_async: bool,
    nvidia: bool,
    environment: Mapping[str, str],
) -> GroupPlan:
    """The groups of a split over `stages` cards (thin version)."""
    groups = batch_groups(slots, stages) if asked in (None, "auto") else int(asked or 1)
    return GroupPlan(groups, batch_mtp and groups == 1, adapt_async and groups == 1, ())


def trim_stage_weights(split: tuple[int, ...] | None) -> bool:
    """True for a split with points of its own: each card then loads its own layers only."""
    return bool(split)
