"""Checks the kernels of attention, norms, hyper-connections and n-gram embeddings on a GPU.

`--write FILE.npz` computes the expected values on the CPU by `engine/reference`;
`--expected FILE.npz` compares the kernels with them bit for bit, then times them in replays of a
CUDA graph. Inputs are made from a hash, so both machines have the same ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from bench.card_timing import median_us
from engine.rows import rows_of
from scripts.gpu_attention_cases import (
    DENSE,
    EPS,
    HISTORIES,
    MOST_US,
    NGRAM,
    SPARSE,
    TABLES,
    WINDOW,
    AttentionCase,
    HyperCase,
    IndexerCase,
    device_side,
    ngram,
    numbers,
    placed_rows,
    reference_side,
    table,
)


def results(side: SimpleNamespace) -> Iterator[tuple[str, torch.Tensor]]:
    """Every checked output with its name."""
    d = side.device

    def named(name: str, outputs: Iterator[torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
        for i, output in enumerate(outputs):
            yield f"{name} {i}", output

    for rows, runs, width in ((5, 4, 2560), (3, 1, 10240), (7, 1, 128)):
        x, w = numbers(1, rows, runs * width).to(d), (numbers(2, runs * width) + 2.5).to(d)
        yield f"rms_norm {rows}x{runs}x{width}", side.rms_norm(x, w, width, EPS)
    for kind in ("int8", "fp16", "f32"):
        case = AttentionCase(side, kind, SPARSE, 4096, HISTORIES, WINDOW, 4)
        yield from named(f"attention sparse {kind}", case.outputs())
        case = AttentionCase(side, kind, DENSE, 4096, HISTORIES, WINDOW)
        yield from named(f"attention dense {kind}", case.outputs())
    case = AttentionCase(side, "int8", SPARSE, 256, (), [(1, 0, 70, 70)], 4)
    yield from named("attention prompt", case.outputs())
    window = [(1, 9000, 6, 1), (2, 2047, 3, 3), (0, 0, 30, 30)]
    yield from named("indexer", IndexerCase(side, 16384, window).outputs())
    yield from named("indexer ties", IndexerCase(side, 16384, window, flat=True).outputs())
    for kind in ("BF16", "Q8_0"):
        yield from named(f"hyper {kind}", HyperCase(side, 5, kind).outputs())
    yield from named("ngram", ngram(side))
    indices = torch.tensor([[3, 63], [0, 3]], device=d)
    for kind in TABLES:
        yield f"table {kind}", table(side, kind).rows(indices)


def write(path: Path) -> None:
    """Expected values by the reference."""
    np.savez_compressed(path, **{name: x.cpu().numpy() for name, x in results(reference_side())})


def compare(name: str, actual: torch.Tensor, wanted: np.ndarray) -> bool:
    """Equal bits, but any NaN equals any other."""
    got = actual.cpu().numpy()
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        print(f"FAILED {name}: {got.dtype} {got.shape}, wanted {wanted.dtype} {wanted.shape}")
        return False
    unsigned = f"u{got.itemsize}"
    differs = np.ascontiguousarray(got).view(unsigned) != np.ascontiguousarray(wanted).view(
        unsigned
    )
    if got.dtype == np.float32:
        differs &= ~(np.isnan(got) & np.isnan(wanted))
    count = int(differs.sum())
    if count:
        print(f"FAILED {name}: {count} of {got.size} differ, first at {np.argwhere(differs)[0]}")
    return not count


def rows_alone(side: SimpleNamespace) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Rows of a window against the same rows alone and in pairs."""
    for kind, ratio in (("int8", 4), ("fp16", 0)):
        case = AttentionCase(side, kind, SPARSE, 4096, HISTORIES, WINDOW, ratio)
        whole = case.run()
        for size in (1, 2):
            parts = [case.run(slice(i, i + size)) for i in range(0, 8, size)]
            yield f"attention {kind} {ratio}, {size} rows at once", torch.cat(parts), whole
    for config, ratio in ((SPARSE, 4), (DENSE, 0)):
        case = AttentionCase(side, "int8", config, 4096, HISTORIES, [(1, 2600, 600, 600)], ratio)
        whole = case.run()
        parts = [case.run(slice(i, i + 50)) for i in range(0, 600, 50)]
        yield f"attention {ratio}, 600 rows at once against 50", torch.cat(parts), whole
    hyper = HyperCase(side, 19, "BF16")
    whole, streams = hyper.read()[0], hyper.streams
    for size in (1, 3, 16):
        parts = []
        for i in range(0, 19, size):
            hyper.streams = streams[i : i + size]
            parts.append(hyper.read()[0])
        yield f"hyper_read, {size} rows at once", torch.cat(parts), whole


def repeated(call: Callable[[], object]) -> list[Callable[[], object]]:
    """A call as often as a graph should hold it."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return [call] * (20 if (time.perf_counter() - begin) * 1e6 < MOST_US else 2)


def timed(side: SimpleNamespace) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is timed. Rows of a window have slots of their own as far as there are three."""
    for count in (1, 4, 16):
        spans = [(i % 3, 2600 + i, 1, 1) for i in range(count)]
        case = AttentionCase(side, "int8", SPARSE, 4096, HISTORIES, spans, 4)
        yield f"attention sparse int8, 2051 cells, {count} rows", case.run
    spans = [(1, 3000, 512, 512)]
    case = AttentionCase(side, "int8", SPARSE, 4096, HISTORIES, spans, 4)
    yield "attention sparse int8, 2051 cells, 512 rows", case.run
    for count, context, position in ((1, 8192, 8000), (16, 8192, 8000), (1, 131072, 8000)):
        spans = [(i % 3, position + i, 1, 1) for i in range(count)]
        case = AttentionCase(side, "int8", DENSE, context, (), spans)
        yield f"attention dense int8, {position} of {context} cells, {count} rows", case.run
    for count, context, position in ((1, 16384, 8000), (16, 16384, 8000), (1, 262144, 250000)):
        indexer = IndexerCase(side, context, [(i % 3, position + i, 1, 1) for i in range(count)])
        yield f"indexer, {position} of {context} tokens, {count} rows", indexer.run
    for count in (1, 16, 512):
        hyper = HyperCase(side, count, "BF16")
        yield f"hyper_read, {count} rows", hyper.read
        weights = torch.rand(count, 4, device=side.device)
        yield f"hyper_write, {count} rows", lambda h=hyper, w=weights: h.write(w)  # type: ignore[misc]
    x, w = numbers(1, 16, 10240).to(side.device), numbers(2, 10240).to(side.device)
    for count in (1, 16):
        yield f"rms_norm 4 x 2560, {count} rows", lambda n=count: side.rms_norm(x[:n], w, 2560, EPS)  # type: ignore[misc]
    rows = placed_rows(rows_of([(0, 0, 4, 4)]), side.device)
    ring = torch.zeros(1, 9, dtype=torch.int64, device=side.device)
    yield "ngram_rows, 4 rows", lambda: side.ngram_rows(ring[0, :4].clone(), ring, NGRAM, rows)
    q4 = table(side, "IQ4_NL")
    indices = torch.arange(64, device=side.device).view(4, 16)
    yield "table IQ4_NL 2560, 64 rows", lambda: q4.rows(indices)


def profile(side: SimpleNamespace) -> None:
    """Time of each kernel, by torch's profiler."""
    for name, call in timed(side):
        call()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            for _ in range(5):
                call()
            torch.cuda.synchronize()
        for event in seen.key_averages():
            each = event.device_time_total / max(event.count, 1)
            print(f"  {name:52} {event.key[:40]:40} {each:9.1f} us x {event.count / 5:g}")


def main() -> None:
    """Writes expected values, or compares and times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--expected", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--profile", action="store_true", help="also time every kernel")
    args = parser.parse_args()
    if args.write:
        write(args.write)
        return
    begin = time.perf_counter()
    side, wanted = device_side(args.device), np.load(args.expected)
    good = [compare(name, actual, wanted[name]) for name, actual in results(side)]
    good += [compare(name, a, b.cpu().numpy()) for name, a, b in rows_alone(side)]
    print(
        f"{sum(good)} of {len(good)} bit for bit, {time.perf_counter() - begin:.0f} s", flush=True
    )
    if not args.no_times:
        for name, call in timed(side):
            print(f"{name:56} {median_us(repeated(call)):10.1f} us", flush=True)
    if args.profile:
        profile(side)
    print(f"{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
