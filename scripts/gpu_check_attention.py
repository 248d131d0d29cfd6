"""Checks the kernels of attention, norms, hyper-connections and n-gram embeddings on a GPU.

`--write FILE.npz` computes the expected values on the CPU by `engine/reference`;
`--expected FILE.npz` compares the kernels with them bit for bit, then times them in replays of a
CUDA graph. Inputs are made from a hash, so both machines have the same ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from engine.gguf.types import quant_type
from engine.models.config import AttentionConfig, IndexerConfig, NgramConfig
from engine.rows import Rows, rows_of
from scripts.gpu_timing import microseconds

EPS = 1e-6
SPARSE = AttentionConfig(24, 2, 256, 256, 64, 1e7)
DENSE = AttentionConfig(16, 2, 256, 256, 64, 1e7)
INDEXER = IndexerConfig(heads=4, key_length=128, top_k=2048)
NGRAM = NgramConfig(
    layers=frozenset({0}), size=3, heads_per_ngram=8, conv_kernel=4, eos_token=3,
    multipliers=(2**63 + 7919, 12345678901234567, 2**64 - 59),
    offsets=tuple(1_000_000 * i for i in range(16)),
    sizes=tuple(999_983 - 2 * i for i in range(16)),
)  # fmt: skip
TABLES = ("F32", "BF16", "F16", "Q4_0", "IQ4_NL", "Q8_0", "Q2_0", "Q5_K", "Q6_K", "Q4_1", "IQ3_S")
MOST_US = 2000.0  # a graph of many calls of a slower operator would take too long


def bits(seed: int, *shape: int) -> np.ndarray:
    """uint32 by a hash of (seed, place)."""
    x = np.arange(int(np.prod(shape)), dtype=np.uint32) + np.uint32(seed * 0x9E3779B9 % 2**32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return (x ^ (x >> np.uint32(16))).reshape(shape)


def numbers(seed: int, *shape: int, size: float = 2.0) -> torch.Tensor:
    """float32 between -size and size, a power of two."""
    values = bits(seed, *shape).view(np.int32).astype(np.float32) * np.float32(2.0**-31)
    return torch.from_numpy(values * np.float32(size))


def reference_side() -> SimpleNamespace:
    """The operators on the CPU."""
    from engine.reference import (
        attention,
        hyper_connections,
        indexer,
        kv_cache,
        matrix,
        ngram_embedding,
        norms,
        rotary,
    )  # fmt: skip

    def cells(c: Any) -> tuple[torch.Tensor, torch.Tensor]:
        scales = torch.from_numpy(c.scales.view(np.int16))
        if c.codes.size:
            return torch.from_numpy(c.codes), scales
        return torch.from_numpy(c.halves.view(np.int16) if c.halves.size else c.floats), scales

    return SimpleNamespace(
        device="cpu", attention=attention.attention, cells=cells, store=kv_cache.store,
        kv_cache=kv_cache.KvCache.empty, select_blocks=indexer.select_blocks,
        rms_norm=norms.rms_norm, rotary_table=rotary.rotary_table, matrix=matrix.matrix,
        hyper_read=hyper_connections.hyper_read, hyper_write=hyper_connections.hyper_write,
        table=ngram_embedding.Table, ngram_rows=ngram_embedding.ngram_rows,
        ngram_gated_value=ngram_embedding.ngram_gated_value, placed={},
    )  # fmt: skip


def device_side(device: str) -> SimpleNamespace:
    """The operators as kernels."""
    from engine.kernels import (
        attention,
        hyper_connections,
        indexer,
        kv_cache,
        matrix,
        ngram_embedding,
        norms,
        rotary,
    )  # fmt: skip

    def cells(c: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return c.values.view(torch.int16) if c.values.dtype == torch.float16 else c.values, (
            c.scales.view(torch.int16)
        )

    return SimpleNamespace(
        device=device, attention=attention.attention, cells=cells, store=kv_cache.store,
        kv_cache=kv_cache.KvCache.empty, select_blocks=indexer.select_blocks,
        rms_norm=norms.rms_norm, rotary_table=rotary.rotary_table, matrix=matrix.matrix,
        hyper_read=hyper_connections.hyper_read, hyper_write=hyper_connections.hyper_write,
        table=ngram_embedding.Table, ngram_rows=ngram_embedding.ngram_rows,
        ngram_gated_value=ngram_embedding.ngram_gated_value, placed={"device": device},
    )  # fmt: skip


def placed_rows(rows: Rows, device: str) -> Rows:
    """The rows on the device."""
    return Rows(rows.spans.to(device), rows.slots.to(device), rows.positions.to(device))


def matrix(side: SimpleNamespace, seed: int, rows: int, columns: int, kind: str) -> Any:
    """A matrix of about 1 / sqrt(columns)."""
    size = 2.0 ** -(columns.bit_length() // 2)
    if kind == "BF16":
        raw = (numbers(seed, rows, columns, size=size).numpy().view(np.uint32) >> 16).astype(
            np.uint16
        )
        packed = raw.view(np.uint8)
    else:
        packed = bits(seed, rows, columns // 32, 34).astype(np.uint8)
        packed[..., :2] = np.array([size / 64], np.float16).view(np.uint8)
        packed = packed.reshape(rows, -1)
    return side.matrix(packed, quant_type(kind), columns, float_activations=False, **side.placed)


def choices(positions: list[int], ratio: int, budget: int) -> torch.Tensor:
    """Blocks of each row by a hash, ascending, padded with -1."""
    chosen = np.full((len(positions), budget), -1, np.int32)
    for line, position in zip(chosen, positions, strict=True):
        complete = (position + 1) // ratio
        count = min(complete, budget)
        line[:count] = np.sort(np.argsort(bits(position, complete), kind="stable")[:count])
    return torch.from_numpy(chosen)


@dataclass
class AttentionCase:
    """Caches of three slots with a history, and a window."""

    side: SimpleNamespace
    kind: str
    config: AttentionConfig
    context: int
    histories: tuple[tuple[int, int], ...]
    spans: list[tuple[int, int, int, int]]
    ratio: int = 0

    def __post_init__(self) -> None:
        c, device = self.config, self.side.device
        shape = (3, self.context, c.kv_heads, c.key_length, c.value_length)
        self.cache = self.side.kv_cache(self.kind, *shape, **self.side.placed)
        for slot, count in self.histories:
            rows = placed_rows(rows_of([(slot, 0, count, count)]), device)
            for i, cells in enumerate((self.cache.keys, self.cache.values)):
                vectors = numbers(10 * slot + i, count, c.kv_heads, c.key_length)
                self.side.store(cells, vectors.to(device), rows)
        rows = rows_of(self.spans)
        self.table = self.side.rotary_table(self.context, c.rotary, c.freq_base, **self.side.placed)
        self.selected = None
        if self.ratio:
            self.selected = choices(rows.positions.tolist(), self.ratio, 512).to(device)
        self.rows = placed_rows(rows, device)
        widths = (c.heads * 2 * c.key_length, c.kv_heads * c.key_length, c.kv_heads * c.key_length)
        self.qkv = [numbers(50 + i, rows.count, n).to(device) for i, n in enumerate(widths)]
        self.norms = [(numbers(60 + i, c.key_length) + 2.5).to(device) for i in range(2)]

    def run(self, part: slice = slice(None)) -> torch.Tensor:
        """The rows of `part`."""
        rows = Rows(self.rows.spans, self.rows.slots[part], self.rows.positions[part])
        selected = None if self.selected is None else self.selected[part]
        out: torch.Tensor = self.side.attention(
            *(x[part] for x in self.qkv), *self.norms, self.table, self.cache, selected, self.ratio,
            self.config, EPS, rows,
        )  # fmt: skip
        return out

    def outputs(self) -> Iterator[torch.Tensor]:
        """The result and the cells that the rows wrote."""
        yield self.run()
        at = self.rows.slots.long(), self.rows.positions.long()
        for cells in (self.cache.keys, self.cache.values):
            values, scales = self.side.cells(cells)
            yield values[at]
            if scales.numel():
                yield scales[at]


HISTORIES = ((1, 2600), (2, 63))
WINDOW = [(1, 2600, 3, 1), (2, 63, 2, 2), (0, 0, 3, 3)]


class IndexerCase:
    """Keys of blocks by a hash, and a window; `flat`: queries of zeros, so that all scores tie."""

    def __init__(
        self, side: SimpleNamespace, context: int, spans: list[tuple[int, int, int, int]],
        ratio: int = 4, flat: bool = False,
    ) -> None:  # fmt: skip
        d = side.device
        rows = rows_of(spans)
        self.side, self.rows, self.ratio = side, placed_rows(rows, d), ratio
        slots = max(span[0] for span in spans) + 1
        self.state = (
            numbers(1, slots, ratio + 7, 128).to(d),
            numbers(2, slots, context // ratio + 1, 128).to(d),
        )
        q = numbers(3, rows.count, 4 * 128) * (0 if flat else 1)
        self.inputs = (
            q.to(d), numbers(4, rows.count, 128).to(d), (numbers(5, 128) + 2.5).to(d),
            (numbers(6, 128) + 2.5).to(d), side.rotary_table(context, 64, 1e7, **side.placed),
        )  # fmt: skip

    def run(self) -> torch.Tensor:
        out: torch.Tensor = self.side.select_blocks(
            *self.inputs, *self.state, self.ratio, INDEXER, EPS, self.rows
        )
        return out

    def outputs(self) -> Iterator[torch.Tensor]:
        yield self.run()
        yield self.state[0]
        yield self.state[1].to("cpu").view(torch.int32).sum(-1)


class HyperCase:
    """Four streams of 2560 and matrices of the 48-layer model."""

    def __init__(self, side: SimpleNamespace, rows: int, kind: str) -> None:
        self.side = side
        self.streams = numbers(1, rows, 4, 2560).to(side.device)
        self.norm = (numbers(2, 4 * 2560) + 2.5).to(side.device)
        self.matrices = (
            matrix(side, 3, 320, 10240, kind), matrix(side, 4, 10240, 320, kind),
            matrix(side, 5, 4, 10240, kind),
        )  # fmt: skip
        self.y = numbers(6, rows, 2560).to(side.device)

    def read(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.side.hyper_read(self.streams, self.norm, *self.matrices, EPS)  # type: ignore[no-any-return]

    def write(self, weights: torch.Tensor) -> None:
        self.side.hyper_write(self.streams, weights, self.y)

    def outputs(self) -> Iterator[torch.Tensor]:
        x, weights = self.read()
        yield x
        yield weights
        self.write(weights)
        yield self.streams


def ngram(side: SimpleNamespace) -> Iterator[torch.Tensor]:
    """Hashes of a few windows, the ring, and gated values."""
    d = side.device
    ring = torch.zeros(3, 9, dtype=torch.int64, device=d)
    for turn, spans in enumerate(([(1, 0, 30, 30), (0, 0, 1, 1)], [(0, 1, 4, 1), (1, 30, 2, 2)])):
        rows = rows_of(spans)  # type: ignore[arg-type]
        tokens = torch.from_numpy((bits(turn, rows.count) % 7).astype(np.int64)) * 35_000
        tokens[::3] = 3
        yield side.ngram_rows(tokens.to(d), ring, NGRAM, placed_rows(rows, d))
    yield ring
    for kind in ("BF16", "Q8_0"):
        key, value = matrix(side, 1, 10240, 320, kind), matrix(side, 2, 2560, 320, kind)
        streams = numbers(3, 5, 4, 2560)
        streams[0, 0] = 0
        norms = [(numbers(4 + i, 10240) + 2.5).to(d) for i in range(2)]
        yield side.ngram_gated_value(
            numbers(6, 5, 320).to(d), streams.to(d), key, value, *norms, EPS
        )


def table(side: SimpleNamespace, kind: str) -> Any:
    """64 rows of 2560 by a hash."""
    t = quant_type(kind)
    raw = bits(7, 64, t.row_bytes(2560)).astype(np.uint8)
    return side.table(raw, t, **side.placed)


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
            print(f"{name:56} {microseconds(repeated(call)):10.1f} us", flush=True)
    if args.profile:
        profile(side)
    print(f"{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
