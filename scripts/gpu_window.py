"""Times windows of a synthetic model on a GPU, and every kernel in them; rows must not interact.

`python -m scripts.gpu_window SPEC [--rows 1,8,16,64] [--prompt 512,4096] [--context N]`, SPEC as
`engine.synthetic` takes it: `qwen3.8-flash-next:iq3_s,layers=4,drafts=0`. Prints a table; with OUT
in the environment, details go to $OUT/window.jsonl. Exit code 1: a row's logits differ between a
window of its own and one with other rows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from engine.kernels.compile_ahead import compile_ahead
from engine.logits import whole_rows
from engine.models.config import ModelConfig
from engine.models.graphs import graph_rows
from engine.models.loader import load_weights
from engine.models.pipeline import DevicePipeline
from engine.models.state import StateShape
from engine.models.words import Words
from engine.ops import ops_for
from engine.synthetic import open_synthetic
from engine.window import Span, Verdict, Window

REPEATS = 12


def load(spec: str, context: int, slots: int) -> tuple[DevicePipeline, dict[str, float]]:
    """The model on the first card, and what it took."""
    begin = time.perf_counter()
    gguf = open_synthetic(spec)
    config = ModelConfig.from_gguf(gguf)
    ops = ops_for("cuda:0")
    weights = load_weights(gguf, config, ops, float_activations=False, drafts=gguf.spec.drafts)
    torch.cuda.synchronize()
    loaded = time.perf_counter()
    shape = StateShape(slots=slots, context=context, kv="int8", drafts=3)
    pipeline = DevicePipeline(weights, config, config, shape, ops)
    torch.cuda.synchronize()
    done = time.perf_counter()
    used = torch.cuda.memory_allocated() / 2**30
    return pipeline, {"load_s": loaded - begin, "state_s": done - loaded, "vram_gib": used}


def compiled_ahead(pipeline: DevicePipeline, rows: list[int]) -> float:
    """Seconds to compile the kernels of windows with so many rows, in several processes."""
    begin = time.perf_counter()
    eager, trunk = pipeline._runner._eager, pipeline.trunk  # type: ignore[attr-defined]

    def launches() -> None:
        for count in {graph_rows(count) for count in rows}:
            words = Words(count, pipeline.slots, pipeline.device)
            trunk.logits(eager.compute(words.ids, words.rows)[1])
            trunk.commit(words.rows)

    compile_ahead(launches, progress=lambda done, of: None)
    return time.perf_counter() - begin


def one_each(count: int, position: int, salt: int = 0) -> Window:
    """One certain row of each of `count` slots."""
    spans = (
        Span(slot, position, ((slot * 7919 + salt * 104729 + position) % 1000,), 1, 0)
        for slot in range(count)
    )
    return Window(tuple(spans))


def timed(pipeline: DevicePipeline, windows: list[Window]) -> list[float]:
    """Milliseconds of forward and commit of each window, one after another."""
    times = []
    for window in windows:
        start = time.perf_counter()
        pipeline.forward(window)()
        pipeline.commit(window, [Verdict(len(s.tokens), 7) for s in window.spans])
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def kernels(run: Any) -> dict[str, tuple[int, float]]:
    """Count and microseconds of every kernel by name."""
    found: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        run()
        torch.cuda.synchronize()
    for event in record.events():
        count, us = found[event.name[:40]]
        found[event.name[:40]] = count + 1, us + event.device_time
    return dict(found)


def graph_ms(graph: Any) -> float:
    """Median time of a replay."""
    times = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def decode(pipeline: DevicePipeline, rows: int, depth: int) -> dict[str, Any]:
    """Times of a window with one row of each of `rows` slots at position `depth`."""
    begin = time.perf_counter()
    timed(pipeline, [one_each(rows, depth)])
    first = time.perf_counter() - begin
    windows = [one_each(rows, depth + 1 + i) for i in range(REPEATS)]
    forward = statistics.median(timed(pipeline, windows))
    graph = pipeline._runner._graphs[graph_rows(rows)]  # type: ignore[attr-defined]
    ms = graph_ms(graph.window)
    found = kernels(graph.window.replay)
    return {
        "rows": rows, "first_s": first, "graph_ms": ms, "forward_ms": forward,
        "tok_s": rows / forward * 1e3, "nodes": sum(n for n, _ in found.values()),
        "busy_us": sum(us for _, us in found.values()), "kernels": found,
    }  # fmt: skip


def prompt(pipeline: DevicePipeline, length: int, chunk: int) -> dict[str, Any]:
    """Time of reading a prompt in chunks."""
    tokens = tuple(int(t) for t in np.random.Philox(length).random_raw(length) % 1000)
    parts = [(at, tokens[at : at + chunk]) for at in range(0, length, chunk)]
    chunks = [Window((Span(0, at, part, len(part), len(part) - 1),)) for at, part in parts]
    pipeline.clear(0)
    begin = time.perf_counter()
    timed(pipeline, chunks)
    first = time.perf_counter() - begin
    pipeline.clear(0)
    ms = sum(timed(pipeline, chunks))
    pipeline.clear(0)
    found = kernels(lambda: timed(pipeline, chunks))
    return {
        "prompt": length, "chunk": chunk, "first_s": first, "ms": ms, "tok_s": length / ms * 1e3,
        "busy_us": sum(us for _, us in found.values()), "kernels": found,
    }  # fmt: skip


def independent(pipeline: DevicePipeline, count: int) -> bool:
    """A slot's rows give the same logits alone, beside others, and as a chunk."""
    length = 5
    for slot in range(count):
        pipeline.clear(slot)
    together = [whole_rows(pipeline.forward(w)()) for w in _each(pipeline, count, length)]
    ok = True
    for slot in {0, count - 1}:
        pipeline.clear(slot)
        tokens = tuple(one_each(count, p).spans[slot].tokens[0] for p in range(length))
        window = Window((Span(slot, 0, tokens, length, 0),))
        alone = whole_rows(pipeline.forward(window)())
        pipeline.commit(window, [Verdict(length, 7)])
        ok &= all((alone[p] == together[p][slot]).all() for p in range(length))
    return ok


def _each(pipeline: DevicePipeline, count: int, length: int) -> Any:
    for position in range(length):
        window = one_each(count, position)
        yield window
        pipeline.commit(window, [Verdict(1, 7)] * count)


def main() -> int:
    """Exit code 0: rows are independent."""
    parser = argparse.ArgumentParser()
    parser.add_argument("spec")
    parser.add_argument("--rows", default="1,8,16,64")
    parser.add_argument("--prompt", default="")
    parser.add_argument("--chunk", type=int, default=4096)
    parser.add_argument("--context", type=int, default=32768)
    parser.add_argument("--depth", type=int, default=4096)
    parser.add_argument("--ladder", action="store_true", help="all graphs, as the engine does")
    parser.add_argument("--top", type=int, default=14)
    asked = parser.parse_args()
    rows = [int(r) for r in asked.rows.split(",") if r]
    pipeline, facts = load(asked.spec, asked.context, max(rows, default=1))
    begin = time.perf_counter()
    if asked.ladder:
        pipeline.warm_up()
        facts["prepare_s"] = time.perf_counter() - begin
    else:
        facts["compile_s"] = compiled_ahead(pipeline, rows)
    print(asked.spec, {k: round(v, 2) for k, v in facts.items()}, flush=True)
    results: list[dict[str, Any]] = [facts]
    equal = True
    if rows:
        begin = time.perf_counter()
        equal = independent(pipeline, min(8, max(rows)))
        print(f"rows independent: {equal} ({time.perf_counter() - begin:.1f} s)", flush=True)
    results += [decode(pipeline, count, asked.depth) for count in rows]
    results += [
        prompt(pipeline, int(length), min(int(length), asked.chunk))
        for length in asked.prompt.split(",")
        if length
    ]
    out = os.environ.get("OUT")
    if out:
        with (Path(out) / "window.jsonl").open("a") as file:
            for result in results:
                file.write(json.dumps({"spec": asked.spec, **result}) + "\n")
    for result in results[1:]:
        print({k: round(v, 3) for k, v in result.items() if k != "kernels"})
        top = sorted(result["kernels"].items(), key=lambda item: -item[1][1])[: asked.top]
        print("   " + "; ".join(f"{name} {n}x {us / n:.1f}={us:.0f}" for name, (n, us) in top))
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
