"""How long a card takes, by its own clock."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

REPLAYS = 7


def elapsed_ms(run: Callable[[], object]) -> float:
    """Milliseconds of what `run` launches."""
    start, end = _event(), _event()
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)  # type: ignore[no-any-return]


def graph_ms(graph: Any, replays: int) -> float:
    """Median milliseconds of a replay."""
    return statistics.median(elapsed_ms(graph.replay) for _ in range(replays))


def graph_us(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Microseconds of one call, in the mean over all of them in a CUDA graph; several replays.

    The first two run before it, so that their kernels are compiled.
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        for call in calls[:2]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    return [1e3 * elapsed_ms(graph.replay) / len(calls) for _ in range(REPLAYS)]


def median_us(calls: Sequence[Callable[[], object]]) -> float:
    """The median of `graph_us`."""
    return statistics.median(graph_us(calls))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
