"""Times windows of a synthetic model on a GPU, and every kernel in them; rows must not interact.

`python -m scripts.gpu_window SPEC [--rows 1,8,16,64] [--prompt 512,4096] [--context N]`, SPEC as
`engine.synthetic` takes it: `qwen3.8-flash-next:iq3_s,layers=4,drafts=0`. Prints a table; with OUT
in the environment, details go to $OUT/window.jsonl. Exit code 1: a row's logits differ between a
window of its own and one with other rows.

With `--write FILE` on a machine without a card and `--expected FILE` on one with it, compares the
logits of a small model: `qwen3.8-flash-next:iq3_s,layers=4,small,drafts=0 --rows 1,8`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from bench.card_timing import graph_ms
from engine.kernels.compile_ahead import compile_ahead
from engine.logits import whole_rows
from engine.models.config import ModelConfig
from engine.models.graph_runner import GraphRunner
from engine.models.graphs import graph_rows
from engine.models.loader import load_weights
from engine.models.pipeline import DevicePipeline
from engine.models.state import StateShape
from engine.models.words import Words
from engine.ops import ops_for
from engine.rows import rows_of
from engine.synthetic import open_synthetic
from engine.window import Span, Verdict, Window

REPEATS = 12
CHUNK = 5
"""Rows of a slot that are computed one by one, and together."""


def build(spec: str, device: str, context: int, slots: int, drafts: int = 3) -> DevicePipeline:
    """The model on a device."""
    gguf = open_synthetic(spec)
    config, ops = ModelConfig.from_gguf(gguf), ops_for(device)
    weights = load_weights(gguf, config, ops, float_activations=False, drafts=gguf.spec.drafts)
    shape = StateShape(slots=slots, context=context, kv="int8", drafts=drafts)
    return DevicePipeline(weights, config, config, shape, ops)


def load(spec: str, context: int, slots: int) -> tuple[DevicePipeline, dict[str, float]]:
    """The model on the first card, and what it took."""
    begin = time.perf_counter()
    pipeline = build(spec, "cuda:0", context, slots)
    torch.cuda.synchronize()
    done = time.perf_counter()
    used = torch.cuda.memory_allocated() / 2**30
    return pipeline, {"load_s": done - begin, "vram_gib": used}


def compiled_ahead(pipeline: DevicePipeline, rows: list[int], prompts: list[int]) -> float:
    """Seconds to compile the kernels of windows and prompts of so many rows, in processes.

    What is missing here is compiled by its first launch, one kernel after the other.
    """
    begin = time.perf_counter()
    runner, trunk = cast(GraphRunner, pipeline._runner), pipeline.trunk
    sizes = {graph_rows(count) for count in (*rows, CHUNK)} if rows else set()

    def launches() -> None:
        for count in sizes:
            words = Words(count, pipeline.slots, pipeline.device)
            runner._chooser.find_best(trunk.logits(runner._eager.compute(words.ids, words.rows)[1]))
            trunk.commit(words.rows)
        for count in prompts:
            ids = torch.zeros(count, dtype=torch.int64, device=pipeline.device)
            spans = rows_of([(0, 0, count, count)], pipeline.device)
            trunk.logits(runner._eager.compute(ids, spans, [0])[1])

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


def timeline(run: Any) -> list[tuple[str, float]]:
    """Every kernel in turn: its name and microseconds.

    A kernel that waits for the one before counts from that one's end: the sum is the time of all.
    """
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        run()
        torch.cuda.synchronize()
    events = [e for e in record.events() if e.device_time > 0]
    told, before = [], 0.0
    for event in sorted(events, key=lambda e: cast(float, e.time_range.end)):
        span = event.time_range
        told.append((event.name[:40], span.end - max(span.start, before)))
        before = span.end
    return told


def by_name(told: list[tuple[str, float]]) -> dict[str, tuple[int, float]]:
    """Count and microseconds of every kernel by name."""
    found: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for name, us in told:
        count, total = found[name]
        found[name] = count + 1, total + us
    return dict(found)


def decode(pipeline: DevicePipeline, rows: int, depth: int) -> dict[str, Any]:
    """Times of a window with one row of each of `rows` slots at position `depth`."""
    begin = time.perf_counter()
    timed(pipeline, [one_each(rows, depth)])
    first = time.perf_counter() - begin
    windows = [one_each(rows, depth + 1 + i) for i in range(REPEATS)]
    forward = statistics.median(timed(pipeline, windows))
    graph = pipeline._runner._graphs[graph_rows(rows)]  # type: ignore[attr-defined]
    ms = graph_ms(graph.window, REPEATS)
    found = timeline(graph.window.replay)
    return {
        "rows": rows, "first_s": first, "graph_ms": ms, "forward_ms": forward,
        "tok_s": rows / forward * 1e3, "nodes": len(found),
        "busy_us": sum(us for _, us in found), "kernels": by_name(found), "timeline": found,
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
    found = timeline(lambda: timed(pipeline, chunks))
    return {
        "prompt": length, "chunk": chunk, "first_s": first, "ms": ms, "tok_s": length / ms * 1e3,
        "busy_us": sum(us for _, us in found), "kernels": by_name(found), "timeline": found,
    }  # fmt: skip


def independent(pipeline: DevicePipeline, count: int) -> bool:
    """A slot's rows give the same logits alone, beside others, and as a chunk."""
    length = CHUNK
    together = played(pipeline, count, length)
    ok = True
    for slot in {0, count - 1}:
        pipeline.clear(slot)
        tokens = tuple(one_each(count, p).spans[slot].tokens[0] for p in range(length))
        window = Window((Span(slot, 0, tokens, length, 0),))
        alone = whole_rows(pipeline.forward(window)())
        pipeline.commit(window, [Verdict(length, 7)])
        ok &= all((alone[p] == together[p][slot]).all() for p in range(length))
    return ok


def played(pipeline: DevicePipeline, count: int, length: int) -> list[Any]:
    """Logits of the first windows of `count` slots that write side by side."""
    for slot in range(count):
        pipeline.clear(slot)
    return [whole_rows(pipeline.forward(w)()) for w in _each(pipeline, count, length)]


def digests(pipeline: DevicePipeline) -> list[list[str]]:
    """Of every row that `played` gives: to compare a card with the CPU."""
    found = played(pipeline, pipeline.slots, 2 * CHUNK)
    return [[hashlib.sha256(row.tobytes()).hexdigest()[:16] for row in rows] for rows in found]


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
    parser.add_argument("--write", type=Path, help="digests of logits, made on the CPU")
    parser.add_argument("--expected", type=Path, help="digests to compare with")
    asked = parser.parse_args()
    if asked.write:
        asked.write.write_text(json.dumps(digests(build(asked.spec, "cpu", 256, 8))))
        return 0
    rows = [int(n) for n in asked.rows.split(",") if n]
    prompts = [int(n) for n in asked.prompt.split(",") if n]
    slots = 8 if asked.expected else max(rows, default=1)
    pipeline, facts = load(asked.spec, 256 if asked.expected else asked.context, slots)
    begin = time.perf_counter()
    if asked.ladder:
        pipeline.warm_up()
        facts["prepare_s"] = time.perf_counter() - begin
    else:
        chunks = [min(count, asked.chunk) for count in prompts]
        facts["compile_s"] = compiled_ahead(pipeline, rows or [1], chunks)
    print(asked.spec, {k: round(v, 2) for k, v in facts.items()}, flush=True)
    if asked.expected:
        return compared(pipeline, json.loads(asked.expected.read_text()))
    equal = True
    if rows:
        begin = time.perf_counter()
        equal = independent(pipeline, min(8, max(rows)))
        print(f"rows independent: {equal} ({time.perf_counter() - begin:.1f} s)", flush=True)
    for count in rows:
        tell(asked, decode(pipeline, count, asked.depth))
    for length in prompts:
        tell(asked, prompt(pipeline, length, min(length, asked.chunk)))
    return 0 if equal else 1


def compared(pipeline: DevicePipeline, expected: list[list[str]]) -> int:
    """Says how many rows have the CPU's bits; 0 if all have."""
    pairs = [
        (one, other)
        for found, wanted in zip(digests(pipeline), expected, strict=True)
        for one, other in zip(found, wanted, strict=True)
    ]
    same = sum(one == other for one, other in pairs)
    print(f"{same} of {len(pairs)} rows have the CPU's bits", flush=True)
    return 0 if same == len(pairs) else 1


def tell(asked: argparse.Namespace, result: dict[str, Any]) -> None:
    """Prints a result at once: a run may be cut off."""
    out = os.environ.get("OUT")
    if out:
        with (Path(out) / "window.jsonl").open("a") as file:
            file.write(json.dumps({"spec": asked.spec, **result}) + "\n")
    print({k: round(v, 3) for k, v in result.items() if k not in ("kernels", "timeline")})
    top = sorted(result["kernels"].items(), key=lambda item: -item[1][1])[: asked.top]
    told = "; ".join(f"{name} {n}x {us / n:.1f}={us:.0f}" for name, (n, us) in top)
    print(f"   {told}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
