"""How long a window takes that verifies drafts: a certain row of one conversation, and drafts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from bench.pipelines import MeasuredPipeline, clear_all
from bench.records import Measurement
from engine.pipeline import Pipeline
from engine.sampling import Sampling
from engine.window import Span, Verdict, Window

_WINDOWS = 32
_WARM_UP = 3


def verify_s(pipeline: Pipeline, rows: int, depth: int) -> float:
    """Seconds of a window of `rows` rows behind `depth` tokens, its logits looked at: the median.

    No draft is kept, so that each window is one token further on.
    """
    clear_all(pipeline)
    pipeline.restore(0, replace(pipeline.save(0), length=depth))
    times = []
    for index in range(_WARM_UP + _WINDOWS):
        start = depth + index
        tokens = tuple((start + row) % pipeline.vocab_size for row in range(rows))
        window = Window((Span(0, start, tokens, 1, 0, Sampling()),))
        begun = time.perf_counter()
        pipeline.forward(window)()
        pipeline.commit(window, [Verdict(1, tokens[0])])
        times.append(time.perf_counter() - begun)
    return median(times[_WARM_UP:])


def measure(
    pipeline: MeasuredPipeline,
    counts: Sequence[int],
    depth: int,
    *,
    repeat: int,
    progress: Callable[[str], None],
    floor: Callable[[int, int, int], float] | None = None,
) -> Iterator[Measurement]:
    """Every count of rows, without the draft layer's own work; `floor` gives the least seconds of a
    window by its conversations, rows and tokens before them."""
    clear_all(pipeline)
    pipeline.pause_drafts(True)
    for rows in counts:
        samples = tuple(1e3 * verify_s(pipeline, rows, depth) for _ in range(repeat))
        details: dict[str, float] = {"rows": rows, "depth": depth}
        if floor is not None:
            details["floor_ms"] = 1e3 * floor(1, rows, depth)
        found = Measurement(
            metric=f"verify.rows{rows}.ms", unit="ms", samples=samples, details=details
        )
        progress(f"{found.metric}: {found.value:.2f} ms")
        yield found
