"""How many drafts each slot that writes gets: as many as make windows worth their time.

A lone conversation gets all there may be. Several share: a draft costs a row, and pays as often as
the model agrees with it. Both are measured while the engine runs; what follows from the
measurements follows by rule. It decides how fast tokens come, never which.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from engine.slots import Run

SHARE = 1 / 8
"""Of a new time in the average of its number of rows."""
FIRST = 3
"""Windows of one size before their time counts."""
ROW_COST = 0.15
"""What one more row costs, over a window of one, before windows of two sizes were timed."""
ACCEPTANCE = 0.6
"""Of drafts, before any was judged."""
BELIEF = 8
"""Judged drafts that an expectation weighs as much as."""
MEMORY = 256
"""Judged drafts after which older ones count half."""
PROBE_WINDOWS = 64
"""Windows of several conversations between two that draft a token each, worth it or not: what is
not measured any more is not known any more."""


class WindowTimes:
    """Seconds of a window by its number of rows, as far as windows were timed."""

    def __init__(self) -> None:
        self._first: dict[int, list[float]] = {}
        self._rows: list[int] = []
        self._seconds: list[float] = []

    def add(self, rows: int, seconds: float) -> None:
        """A window took so long. The first ones of a size may have compiled something, and any may
        have been held up: the fastest of the first counts, and then nobody more than twice."""
        first = self._first.setdefault(rows, [])
        if len(first) < FIRST:
            first.append(seconds)
            if len(first) == FIRST:
                at = bisect_left(self._rows, rows)
                self._rows.insert(at, rows)
                self._seconds.insert(at, min(first))
            return
        at = bisect_left(self._rows, rows)
        old = self._seconds[at]
        self._seconds[at] = old + SHARE * (min(seconds, 2 * old) - old)

    def of(self, rows: int) -> float:
        """Seconds of a window of so many rows: timed, or on a line through the nearest times. More
        rows never take less time, nor fewer rows less than their share."""
        if not self._rows:
            return 1 + ROW_COST * (rows - 1)
        first = self._rows[0]
        if len(self._rows) == 1:
            share = (1 + ROW_COST * (rows - 1)) / (1 + ROW_COST * (first - 1))
            return self._seconds[0] * share
        at = min(max(1, bisect_left(self._rows, rows)), len(self._rows) - 1)
        before = max(self._seconds[:at])
        after = max(before, self._seconds[at])
        left, right = self._rows[at - 1], self._rows[at]
        found = before + (after - before) * (rows - left) / (right - left)
        return max(found, self._seconds[0] * min(1, rows / first))


class DraftRows:
    """Counts the drafts of every slot in turn.

    most: drafts of one slot. window_rows: rows of all slots (`None`: any number). always: `True`:
    all drafts that there may be, `False`: none unless a conversation is alone, `None`: by
    measurement.
    """

    def __init__(self, most: int, window_rows: int | None, always: bool | None) -> None:
        self.times = WindowTimes()
        self._most = most
        self._window_rows = window_rows
        self._always = always
        self._accepted = 0.0
        self._judged = 0.0
        self._windows = 0

    def judged(self, run: Run, offered: int, accepted: int) -> None:
        """Of the drafts of a span so many were right; behind a wrong one nothing is known."""
        judged = accepted + (accepted < offered)
        run.judged += judged
        if self._judged >= MEMORY:
            self._accepted, self._judged = self._accepted / 2, self._judged / 2
        self._accepted += accepted
        self._judged += judged

    def counts(self, runs: Sequence[Run]) -> list[int]:
        """Drafts for each of the conversations that write."""
        writing, most = len(runs), self._most
        if not writing or most < 1:
            return [0] * writing
        room = most * writing
        if self._window_rows is not None:
            room = max(0, min(room, self._window_rows - writing))
        if writing == 1 or self._always:
            return [room // writing] * writing
        if self._always is False:
            return [0] * writing
        self._windows += 1
        least = min(writing, room) if self._windows % PROBE_WINDOWS == 0 else 0
        return self._shared(runs, least, room)

    def _shared(self, runs: Sequence[Run], least: int, room: int) -> list[int]:
        """The likeliest drafts, as many as give the most tokens a second."""
        rates = [self._acceptance(run) for run in runs]
        gains = sorted(
            (
                (rate**depth, -depth, -index)
                for index, rate in enumerate(rates)
                for depth in range(1, self._most + 1)
            ),
            reverse=True,
        )
        tokens, best, speed = float(len(runs)), 0, len(runs) / self.times.of(len(runs))
        for count, (gain, _, _) in enumerate(gains[:room], 1):
            tokens += gain
            if tokens / self.times.of(len(runs) + count) > speed:
                best, speed = count, tokens / self.times.of(len(runs) + count)
        counts = [0] * len(runs)
        for _, _, index in gains[: max(best, least)]:
            counts[-index] += 1
        return counts

    def _acceptance(self, run: Run) -> float:
        """The share of this conversation's drafts that are right, of those that are judged."""
        usual = (self._accepted + BELIEF * ACCEPTANCE) / (self._judged + BELIEF)
        return (run.accepted + BELIEF * usual) / (run.judged + BELIEF)
