"""Every operator of a window by itself: its time, the weights that it reads, and their floor.

One window is computed with operators that write down how they are called. Then the calls of each
kind, one for each layer, follow each other in a graph: their weights are many times the card's
cache, so that each call reads its own from memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

from bench.card_timing import graph_us
from bench.records import Measurement
from engine.models.config import ModelConfig
from engine.models.trunk import Trunk
from engine.ops import Ops
from engine.rows import rows_of

_MAKERS = ("device", "matrix", "table", "kv_cache", "rotary_table")
"""Fields of `Ops` that make something while a model is loaded."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of an operator, ready to be made again."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    def __call__(self) -> None:
        self.function(*self.arguments, **self.keywords)

    def weight_bytes(self, chosen: float) -> int:
        """Bytes of its matrices; of stacks of experts the share that is `chosen`."""
        found = (*self.arguments, *self.keywords.values())
        return sum(_matrix_bytes(argument, chosen) for argument in found)

    @property
    def kind(self) -> str:
        """The operator and the shapes of its matrices: `project 16384x2560+6144x2560`."""
        shapes = [shape for argument in self.arguments for shape in _shapes(argument)]
        return " ".join(filter(None, (self.name, "+".join(shapes))))


class Recorder:
    """Operators that can write down their calls."""

    def __init__(self, ops: Ops) -> None:
        self._calls: list[Call] | None = None
        wrapped: dict[str, Any] = {
            field.name: self._wrapped(field.name, getattr(ops, field.name))
            for field in fields(ops)
            if field.name not in _MAKERS
        }
        self.ops = replace(ops, **wrapped)

    def calls(self, run: Callable[[], object]) -> list[Call]:
        """The calls that `run` makes."""
        self._calls = []
        run()
        found, self._calls = self._calls, None
        return found

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **keywords: Any) -> Any:
            if self._calls is not None:
                self._calls.append(Call(name, function, arguments, keywords))
            return function(*arguments, **keywords)

        return called


def window_calls(recorder: Recorder, trunk: Trunk, slots: int, depth: int) -> list[Call]:
    """The calls of a window with a row of each of `slots` conversations of `depth` tokens."""
    device = recorder.ops.device
    ids = torch.arange(slots, device=device)
    rows = rows_of([(slot, depth, 1, 1) for slot in range(slots)], device)
    return recorder.calls(lambda: trunk.logits(trunk.hidden(trunk.forward(ids, rows))))


def by_kind(calls: Sequence[Call]) -> dict[str, list[Call]]:
    """Calls of one kind together, in the order of their first ones."""
    found: dict[str, list[Call]] = {}
    for call in calls:
        found.setdefault(call.kind, []).append(call)
    return found


def measure(
    calls: Sequence[Call],
    config: ModelConfig,
    rows: int,
    copy_bytes_per_s: float,
    progress: Callable[[str], None],
) -> Iterator[Measurement]:
    """Microseconds of a call of every kind, in a window of `rows` rows on a card."""
    experts = config.experts
    chosen = 1 - (1 - experts.used / experts.count) ** rows
    for kind, same in by_kind(calls).items():
        samples = tuple(graph_us(same))
        read = statistics.mean(call.weight_bytes(chosen) for call in same)
        floor = 1e6 * read / copy_bytes_per_s
        found = Measurement(
            metric=f"kernel.rows{rows}.{kind.replace(' ', '.')}.us",
            unit="us",
            samples=samples,
            details={"rows": rows, "calls": len(same), "weight_bytes": read, "floor_us": floor},
        )
        progress(f"{found.metric}: {found.value:.1f} us, {len(same)} a window")
        yield found


def _matrices(argument: Any) -> Iterator[Any]:
    """The matrices in an argument: itself, in a sequence, or in a group of weights."""
    if hasattr(argument, "columns") and hasattr(argument, "rows"):
        yield argument
    elif isinstance(argument, tuple | list):
        for one in argument:
            yield from _matrices(one)
    elif is_dataclass(argument) and type(argument).__module__ == "engine.models.weights":
        for field in fields(argument):
            yield from _matrices(getattr(argument, field.name))


def _shapes(argument: Any) -> Iterator[str]:
    for matrix in _matrices(argument):
        yield f"{matrix.rows}x{matrix.columns}"


def _matrix_bytes(argument: Any, chosen: float) -> int:
    total = 0.0
    for matrix in _matrices(argument):
        record = getattr(matrix, "record", None)
        if isinstance(record, torch.Tensor):
            total += record.nbytes * (chosen if len(record) > 1 else 1.0)
    return round(total)
