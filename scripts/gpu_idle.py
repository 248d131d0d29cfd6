"""How long a GPU waits between windows: engine steps against the graphs that they replay.

`python -m scripts.gpu_idle SPEC [--streams 1,8] [--spec 4]`, SPEC as `engine.synthetic` takes it.
Prints a line for each graph, then one for each number of streams and way of choosing tokens.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from bench.card_timing import graph_ms
from engine.engine import Engine, EngineOptions
from engine.models.pipeline import DevicePipeline
from engine.request import Request
from engine.sampling import Sampling
from scripts.gpu_window import build

WAYS = {
    "greedy": Sampling(),
    "top_k": Sampling(temperature=0.8, top_k=20, top_p=0.95, seed=3),
    "all": Sampling(temperature=1.0, seed=3),
}
TOKENS, WARM, REPLAYS = 60, 10, 20


def step_ms(pipeline: DevicePipeline, streams: int, spec: int, sampling: Sampling) -> float:
    """Median time of an engine's step."""
    for slot in range(pipeline.slots):
        pipeline.clear(slot)
    engine = Engine(pipeline, EngineOptions(spec=spec, checkpoints=0))
    for slot in range(streams):
        tokens = (5 + slot, 6, 7)
        engine.submit(Request(id=str(slot), tokens=tokens, max_new=TOKENS, sampling=sampling))
    times = []
    while engine.busy:
        start = time.perf_counter()
        engine.step()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[WARM:-1])


def main() -> None:
    """Loads, then measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--streams", default="1,8")
    parser.add_argument("--spec", type=int, default=4)
    asked = parser.parse_args()
    streams = [int(count) for count in asked.streams.split(",")]
    begin = time.perf_counter()
    pipeline = build(asked.model, "cuda:0", 4096, max(streams), asked.spec - 1)
    torch.cuda.synchronize()
    loaded = time.perf_counter()
    pipeline.warm_up()
    torch.cuda.synchronize()
    ready, vram = time.perf_counter(), torch.cuda.memory_allocated() / 2**30
    print(f"loaded {loaded - begin:.1f} s, graphs {ready - loaded:.1f} s, {vram:.2f} GiB")
    runner: Any = pipeline._runner
    drafting: Any = pipeline._drafting
    for size in runner.sizes:
        graph = runner._graphs[size]
        line = f"rows {size}: window {graph_ms(graph.window, REPLAYS):.3f} ms"
        if drafting is not None:
            line += f", feed {graph_ms(drafting._feeds[size].graph, REPLAYS):.3f}"
            chain = drafting._chains.get((size, asked.spec - 1))
            line += f", chain {graph_ms(chain.graph, REPLAYS):.3f}" if chain else ""
        print(line, flush=True)
    for count in streams:
        replay = graph_ms(runner._graph(count).window, REPLAYS)
        for name, sampling in WAYS.items():
            ms = step_ms(pipeline, count, 1, sampling)
            more = f"{1e3 * (ms - replay):.0f} us more than its graph"
            print(f"streams {count}, {name}: step {ms:.3f} ms, {more}", flush=True)
        if pipeline.can_draft:
            ms = step_ms(pipeline, count, asked.spec, WAYS["greedy"])
            print(f"streams {count}, drafts: step {ms:.3f} ms", flush=True)


if __name__ == "__main__":
    main()
