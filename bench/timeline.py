"""When streams wrote, small enough to be kept with a record: pieces of text by short times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

BINS = 200
MOST_STREAMS = 16
"""More lines than this are no help in a plot."""
_SHORTEST_S = 0.005

Read = tuple[str, float, float]
"""A prompt: its name, when it was sent, and when its first token came."""


def timeline(
    streams: Iterable[Sequence[float]], begin: float, end: float, reads: Sequence[Read] = ()
) -> dict[str, Any]:
    """Pieces of each stream between two moments, in times of `every_s` seconds, and the reads in
    seconds behind `begin`."""
    every_s = max(_SHORTEST_S, (end - begin) / BINS)
    bins = int((end - begin) / every_s) + 1
    counted = []
    for moments in list(streams)[:MOST_STREAMS]:
        counts = [0] * bins
        for moment in moments:
            if begin <= moment <= end:
                counts[int((moment - begin) / every_s)] += 1
        counted.append(counts)
    return {
        "every_s": round(every_s, 5),
        "streams": counted,
        "reads": [
            [name, round(sent - begin, 4), round(first - begin, 4)] for name, sent, first in reads
        ],
    }
