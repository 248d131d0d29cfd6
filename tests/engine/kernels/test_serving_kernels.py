"""Whatever serving launches is compiled before it begins, in windows of any size."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROWS = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 63, 64)
LONG = (65, 66, 100, 255, 256, 257, 511, 512, 700, 1000, 1023, 1024)
SPECS = (
    "qwen3.8-flash-next:iq3_s,layers=4,small,experts=16,vocabulary=512",
    "qwen3.6-35b-a3b:ud-iq4_xs,layers=4,small,experts=16,vocabulary=512",
)


def windows() -> Iterator[list[tuple[int, int, int, int]]]:
    """Spans: a row a slot, prompts, and prompts beside rows of other slots."""
    for rows in ROWS:
        yield [(slot, 0, 1, 1) for slot in range(rows)]
    for rows in LONG:
        yield [(0, 0, rows, rows)]
        for slots in (3, 40):
            ones = [(slot, 0, 1, 1) for slot in range(slots)]
            yield [*ones, (slots, 0, rows - slots, rows - slots)]


def missing(spec: str) -> set[str]:
    """What windows, drafts and slots launch beside what the pipeline says before."""
    from engine.kernels.compile_ahead import listed
    from engine.models.asks import Ask
    from engine.models.drafting import values_of
    from engine.models.runner import EagerRunner
    from engine.models.words import Words
    from engine.rows import Rows, rows_of
    from engine.sampling import Sampling
    from scripts.compile_kernels import as_on_a_card, pipeline_of

    as_on_a_card()
    pipeline = pipeline_of(spec, slots=64, longest=max(LONG))
    known = {str(job) for job in listed(pipeline.launches)}
    trunk, drafter = pipeline.trunk, pipeline.drafter
    assert drafter is not None
    streams = pipeline._drafting.last.shape[1:]
    eager = EagerRunner(trunk, "cpu", hyper=len(streams) > 1, drafts=True)
    chooser = pipeline._runner._chooser

    def window(ids: torch.Tensor, rows: Rows) -> None:
        wanted = list(range(rows.spans.shape[0]))
        _, hidden = eager.compute(ids, rows, wanted)
        logits = trunk.logits(hidden)
        chooser.find_best(logits)
        for sampling in (Sampling(temperature=0.7), Sampling(temperature=0.7, top_p=0.9)):
            chooser.ask(logits, [Ask(row, 1, sampling).words for row in wanted[:5]], 64)
        trunk.commit(rows)
        _, hidden = drafter.forward(torch.empty(rows.count, *streams), ids, rows)
        drafter.logits(values_of(hidden)[:64])

    def serve() -> None:
        for spans in windows():
            rows = rows_of(spans)
            window(torch.zeros(rows.count, dtype=torch.int64), rows)
        for rows in ROWS:  # as graphs have them: in one piece of memory
            words = Words(rows, 64, "cpu")
            window(words.ids, words.rows)
        for slot in (0, 1, 16, 63):
            for restore in (False, True):
                flat = torch.empty(pipeline._state._words, dtype=torch.int32)
                pipeline._state._move(slot, flat, restore=restore)
            pipeline._state.clear(slot)

    served = {str(job) for job in listed(serve)}
    assert len(served) > 20  # else nothing was listed at all
    return served - known


def largest_grids(rows: int) -> dict[str, int]:
    """The longest second or third axis of each kernel's grids for a prompt of `rows` tokens."""
    from triton.runtime.jit import JITFunction

    from engine.gguf.types import quant_type
    from engine.kernels.linear import product
    from engine.kernels.table import Table
    from engine.models.runner import EagerRunner
    from engine.rows import rows_of
    from scripts.compile_kernels import as_on_a_card, pipeline_of
    from tests.engine.kernels.packing import random_pair

    as_on_a_card()
    found: dict[str, int] = {}

    def launch(self: Any, *args: Any, grid: tuple[int, ...], **options: Any) -> None:
        name = f"{self.module}.{self.fn.__name__}"
        found[name] = max(found.get(name, 0), *grid[1:], 0)

    JITFunction.run = launch

    for spec in SPECS:
        pipeline = pipeline_of(spec + ",drafts=0", slots=1, longest=64)
        eager = EagerRunner(pipeline.trunk, "cpu", hyper=False, drafts=False)
        made = rows_of([(0, 0, rows, rows)])
        eager.compute(torch.zeros(rows, dtype=torch.int64), made, [0])
    experts = torch.zeros(rows, 10, dtype=torch.int32)
    for kind in ("F32", "Q8_0"):
        product(torch.zeros(rows, 64), random_pair(kind, (2, 16), 64)[1], experts, 10)
    kind = quant_type("Q2_K")
    table = Table(np.zeros((2, kind.block_bytes), np.uint8), kind, device="cpu")
    table.rows(torch.zeros(rows, 16, dtype=torch.int64))
    return found


def child(call: str) -> str:
    """What a call here prints, in a process without the interpreter."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = f"from {__name__} import *; print({call})"
    done = subprocess.run(
        [sys.executable, "-c", command],
        env=kept,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_window_launches_another_kernel() -> None:
    assert not child("*missing(SPECS[0]) | missing(SPECS[1]), sep='\\n'")


def test_a_long_prompt_fits_every_grid() -> None:
    assert int(child("max(largest_grids(16384).values())")) <= 65535
