"""What windows did, counted, and the sentence about it in the engine's log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from engine.speculative import Outcome
from engine.window import Window

EVERY_S = 10.0
"""Between two sentences while windows run."""

SHORT_S = 1.0
"""Less work than this is not worth one."""

ExpertCounts: TypeAlias = Callable[[], tuple[int, int]]
"""Routed experts that windows found on the device, and that came over the wire, so far."""


@dataclass(slots=True)
class Work:
    """Counts of an engine since its start; seconds of wall time by what it was busy with."""

    windows: int = 0
    rows: int = 0
    offered: int = 0
    accepted: int = 0
    parked: int = 0
    """Conversations that lost their slot and were kept in host memory."""
    restored: int = 0
    """Of them, those that somebody went on with."""
    dropped: int = 0
    """Conversations that host memory had no room for, or no more."""
    run_s: float = 0.0
    """Launching windows, and waiting for their logits."""
    choose_s: float = 0.0
    commit_s: float = 0.0
    """With checkpoints."""
    draft_s: float = 0.0

    def spent(self, phase: str, since: float) -> float:
        """Counts the time since `since` for a phase; the time now, of `time.perf_counter`."""
        now = time.perf_counter()
        setattr(self, phase, getattr(self, phase) + now - since)
        return now

    def add(self, window: Window, outcomes: Sequence[Outcome]) -> None:
        """Counts a window."""
        self.windows += 1
        self.rows += window.rows
        self.offered += sum(outcome.offered for outcome in outcomes)
        self.accepted += sum(outcome.accepted for outcome in outcomes if outcome.offered)


class WorkLog:
    """Tells of `work` every `EVERY_S` seconds, and when the engine has nothing more to do."""

    def __init__(
        self,
        work: Work,
        clock: Callable[[], float],
        experts: ExpertCounts | None = None,
    ) -> None:
        self._work = work
        self._clock = clock
        self._experts = experts
        self._told = replace(work)
        self._told_experts = (0, 0)
        self._since = clock()

    def wakes(self) -> None:
        """The time that the engine had nothing to do does not count."""
        self._since = self._clock()

    def due(self, *, idle: bool) -> bool:
        """Whether there is something to tell, and it is time."""
        if self._work.windows == self._told.windows:
            return False
        return idle or self._clock() - self._since >= EVERY_S

    def tell(self) -> tuple[str, Mapping[str, int]]:
        """The sentence about the time since the last one (empty: too short for one), and the counts
        since the start."""
        now, then, work = self._clock(), self._told, self._work
        windows, seconds = work.windows - then.windows, max(now - self._since, 1e-9)
        rows = work.rows - then.rows
        phases = ((name, getattr(work, name) - getattr(then, name)) for name in _PHASES)
        each = ", ".join(f"{name.removesuffix('_s')} {1e3 * s / windows:.2f}" for name, s in phases)
        parts = [
            f"{windows} windows of {rows / windows:.1f} rows",
            f"{1e3 * seconds / windows:.2f} ms each ({each})",
            f"{rows / seconds:.1f} rows/s",
        ]
        counts: dict[str, int] = {}
        if self._experts is not None:
            found, fetched = self._experts()
            counts |= {"expert_hits": found, "expert_fetches": fetched}
            hits, misses = found - self._told_experts[0], fetched - self._told_experts[1]
            share = hits / max(1, hits + misses)
            parts.append(f"experts {share:.1%} in VRAM, {misses / windows:.1f} a window by wire")
            self._told_experts = found, fetched
        if work.offered > then.offered:
            kept, of = work.accepted - then.accepted, work.offered - then.offered
            parts.append(f"drafts {kept} of {of} kept")
        if any(getattr(work, name) for name in _PARKING):
            counts |= {f"conversations_{name}": getattr(work, name) for name in _PARKING}
            new = (f"{getattr(work, name) - getattr(then, name)} {name}" for name in _PARKING)
            parts.append("conversations " + ", ".join(new))
        self._told, self._since = replace(work), now
        return "strata batch: " + ", ".join(parts) if seconds >= SHORT_S else "", counts


_PARKING = ("parked", "restored", "dropped")
_PHASES = ("run_s", "choose_s", "commit_s", "draft_s")
