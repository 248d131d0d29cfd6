"""Making CUDA graphs, and how many rows they have."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from engine.models.words import Words

LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Rows of graphs that choose a token for each of them."""
PROMPT_LADDER = (96, 128, 192, 256)
"""Rows of graphs for prompts, which choose tokens for up to `LADDER[-1]` of them. The kernels of
larger windows run so long that their launches hide behind them."""


def graph_rows(rows: int, sizes: Sequence[int] = LADDER) -> int:
    """The fewest of `sizes` with room for `rows`; 0: none has."""
    step = bisect_left(sizes, rows)
    return sizes[step] if step < len(sizes) else 0


def words_of(size: int, spare: int, device: str) -> Words:
    """The input of a graph of `size` rows."""
    return Words(size, spare, device, LADDER[-1] if size > LADDER[-1] else 0)


def long_windows(longest: int) -> list[int]:
    """Rows of windows without a graph that launch whatever those of up to `longest` rows launch.

    Kernels change with the number of rows, each at a few numbers, and not back again."""
    rows, found = LADDER[-1] + 1, []
    while rows < longest:
        found.append(rows)
        rows = 1 << rows.bit_length()
    return [*found, longest] if longest > LADDER[-1] else []


Tensors = tuple[torch.Tensor, ...]


class Graph(Protocol):
    """Launches that can be repeated."""

    def replay(self) -> None:
        """Once more, with what lies in the same memory now."""


class _Memory:
    """Memory as torch takes it over, without owning it."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = interface


class Recorder:
    """Makes graphs that run one after another: what lies between their operators is shared."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(self, run: Callable[[], Tensors]) -> tuple[Graph, Tensors]:
        """What `run` launches, and the tensors that every replay writes again.

        It is run once before, which compiles its kernels.
        """
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            run()
            self._stream.synchronize()
            graph.capture_begin(pool=self._pool)
            try:
                left = run()
            finally:
                graph.capture_end()
        return graph, left

    def lend(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor in the same memory, which graphs made later may use, too.

        For what is read before another graph runs.
        """
        return torch.as_tensor(_Memory(tensor.__cuda_array_interface__), device=self.device)

    def give_back(self) -> None:
        """Memory that only the runs before the graphs needed."""
        torch.cuda.empty_cache()

    def wait(self) -> None:
        """Until everything that was launched is done."""
        torch.cuda.current_stream(self.device).synchronize()


def recorder_for(device: str) -> Recorder | None:
    """None where there are no graphs."""
    return Recorder(device) if device.startswith("cuda") else None
