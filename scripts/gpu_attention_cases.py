"""Inputs and operators that `gpu_check_attention` compares on the CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from engine.gguf.types import quant_type
from engine.models.config import AttentionConfig, IndexerConfig, NgramConfig
from engine.rows import Rows, rows_of

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
        device=device, attention=lambda *given: attention.attention(*given).values, cells=cells,
        store=kv_cache.store, kv_cache=kv_cache.KvCache.empty, select_blocks=indexer.select_blocks,
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
        norms = [(numbers(4 + i, 10240) + 2.5).to(d) for i in range(3)]
        yield from side.ngram_gated_value(
            numbers(6, 5, 320).to(d), streams.to(d), key, value, *norms, EPS
        )


def table(side: SimpleNamespace, kind: str) -> Any:
    """64 rows of 2560 by a hash."""
    t = quant_type(kind)
    raw = bits(7, 64, t.row_bytes(2560)).astype(np.uint8)
    return side.table(raw, t, **side.placed)
