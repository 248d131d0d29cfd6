"""Times of launches on a GPU, as they are inside a CUDA graph."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

REPLAYS = 7


def microseconds(calls: Sequence[Callable[[], object]]) -> float:
    """Median time of one of `calls`, which follow each other in a graph that is replayed.

    The first two run before it, so that their kernels are compiled.
    """
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / len(calls))
    return statistics.median(times)
