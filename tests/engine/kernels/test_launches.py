"""A decode window of a whole model is a graph of few nodes, all of them kernels of ours."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

MOST = {1: 108, 4: 137}
"""Nodes by rows of the window: 12 and 15.5 a layer, and 12 more. With all 48 layers that is 588
and 757; 700 were asked for at one row."""
NO_KERNELS = {
    *("aten.empty.memory_format", "aten.new_empty.default", "aten.empty_like.default"),
    *("aten.split_with_sizes.default", "aten.view.default", "aten.slice.Tensor"),
    *("aten.select.int", "aten.unsqueeze.default", "aten.lift_fresh.default"),
}
"""Operators of torch that give memory or look at it in another way."""
SPEC = "qwen3.8-flash-next:iq3_s,layers=8,small,experts=16,vocabulary=512,drafts=0"


class Operators(TorchDispatchMode):
    """Counts what torch itself is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found[str(func)] += 1
        return func(*args, **(kwargs or {}))


def nodes(pipeline: Any, rows: int) -> tuple[int, dict[str, int]]:
    """Launches of a window, and torch's operators in it by name."""
    from triton.runtime.jit import JITFunction

    from engine.models.runner import EagerRunner
    from engine.models.words import Words

    trunk, launched = pipeline.trunk, 0
    eager = EagerRunner(trunk, "cpu", hyper=True, drafts=False)
    words = Words(rows, 8, "cpu")

    def run(self: object, *args: object, **options: object) -> None:
        nonlocal launched
        launched += 1

    JITFunction.run = run
    with Operators() as operators:
        logits = trunk.logits(eager.compute(words.ids, words.rows)[1])
        pipeline._runner._chooser.find_best(logits)
        trunk.commit(words.rows)
    return launched, dict(operators.found)


def test_a_window_has_few_nodes_and_they_are_ours() -> None:
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root), "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name],
        env=environment, cwd=root, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for (rows, most), (launched, torchs) in zip(MOST.items(), json.loads(done.stdout), strict=True):
        assert 80 < launched <= most, f"{rows} rows"
        assert torchs.keys() <= NO_KERNELS


def main() -> None:
    """Tells of all windows, in a process of its own: its machine passes for one with a card."""
    from scripts.compile_kernels import as_on_a_card, pipeline_of

    as_on_a_card()
    pipeline = pipeline_of(SPEC, slots=8, longest=64)
    for rows in MOST:
        nodes(pipeline, rows)  # constants are made once
    print(json.dumps([nodes(pipeline, rows) for rows in MOST]))


if __name__ == "__main__":
    main()
