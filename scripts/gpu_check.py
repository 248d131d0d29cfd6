"""Checks the matrix and expert kernels on a GPU against the CPU's bits, and times them.

`--write FILE.npz` computes the expected values by `engine/reference`; `--expected FILE.npz`
compares the kernels with them on a CUDA machine, then times them in replays of CUDA graphs over
rotating weights. Inputs come from a hash, so both machines have the same ones. Large matrices
repeat a base of few outputs, which the reference computes once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.gguf.types import quant_type
from scripts.gpu_timing import microseconds

BASE = 96  # outputs of a matrix that differ; a multiple of a tile
EXPERTS, USED = 24, 10
HALVES = {
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q2_K": (80, 82), "IQ3_S": (0,),
    "IQ2_S": (0,), "IQ4_XS": (0,), "IQ4_NL": (0,), "Q5_1": (0, 2), "Q4_0": (0,), "Q8_0": (0,),
    "Q2_0": (0,),
}  # fmt: skip
WORKERS = 14
LEFT_IN_CACHE = 300_000_000  # bytes that a rotation has at least
COPY_TB_S = 4.28


@dataclass(frozen=True)
class Case:
    """A matrix, and the rows that are compared and timed."""

    kind: str
    outputs: int
    columns: int
    rows: tuple[int, ...] = (1, 2, 3, 4, 5, 16, 17)
    timed: tuple[int, ...] = (1, 4, 16)

    @property
    def name(self) -> str:
        return f"{self.kind} {self.outputs}x{self.columns}"


LINEAR = (
    Case("IQ3_S", 16384, 2560, (1, 2, 3, 4, 5, 16, 17, 65), (1, 2, 4, 8, 16, 64, 512)),
    Case("Q4_K", 10240, 2560),
    Case("Q5_K", 2560, 6144),
    Case("Q6_K", 248320, 2560, (1, 4, 16), (1, 4, 16)),
    Case("IQ4_XS", 12288, 2560, (1, 4, 16), (1, 16)),
    Case("Q8_0", 512, 2560, (1, 3, 16), (1, 16)),
    Case("IQ2_S", 640, 2560, (1, 16), (1,)),
    Case("Q2_K", 640, 2560, (1, 16), ()),
    Case("Q5_1", 2560, 640, (1, 2, 17), (1,)),
    Case("Q4_0", 96, 96, (1, 2, 17), ()),
    Case("BF16", 320, 10240, (1, 2, 3, 17), (1, 4, 16)),
    Case("BF16", 10240, 320, (1, 2, 3, 17), (1, 4, 16)),
    Case("BF16", 4, 10240, (1, 4), (1, 16)),
    Case("F32", 512, 2560, (1, 4), (1, 16)),
)
# Types of gate and up (640 x 2560) and of down (2560 x 640); rows.
MIXTURES = (("IQ3_S", "IQ4_NL", (1, 8, 130)), ("IQ2_S", "Q2_0", (1, 8)))


def bits(seed: int, *shape: int) -> np.ndarray:
    """uint32 by a hash of (seed, place)."""
    x = np.arange(int(np.prod(shape)), dtype=np.uint32) + np.uint32(seed * 0x9E3779B9 % 2**32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return (x ^ (x >> np.uint32(16))).reshape(shape)


def floats(seed: int, *shape: int) -> np.ndarray:
    """float32 in -1..1."""
    return bits(seed, *shape).view(np.int32).astype(np.float32) * np.float32(2.0**-31)


def stored(seed: int, kind: str, rows: tuple[int, ...], columns: int) -> np.ndarray:
    """Stored rows of a type, uint8 [*rows, row_bytes], with scales of moderate size."""
    if kind in ("F32", "BF16"):
        values = floats(seed, *rows, columns) / np.float32(columns**0.5)
        if kind == "F32":
            return values.view(np.uint8)
        return np.ascontiguousarray(values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    t = quant_type(kind)
    raw = bits(seed, *rows, columns // t.block_elements, t.block_bytes).astype(np.uint8)
    for at in HALVES[kind]:
        raw[..., at + 1] = (raw[..., at + 1] & 0x83) | 0x14  # 2**-10 to 2**-9, both signs
    return raw.reshape(*rows, -1)


def activations(rows: int, columns: int) -> torch.Tensor:
    """Rows of different sizes with a group of zeros; row i is the same for any number of rows."""
    x = np.stack([floats(100 + i, columns) * np.float32(2.0 ** (i % 5 - 2)) for i in range(rows)])
    x[:, 32:64] = 0
    return torch.from_numpy(x)


def choices(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Experts int32 [R, USED], distinct in a row, and their weights."""
    order = [np.argsort(bits(500 + i, EXPERTS), kind="stable")[:USED] for i in range(rows)]
    weights = [np.abs(floats(600 + i, USED)) for i in range(rows)]
    return torch.from_numpy(np.stack(order).astype(np.int32)), torch.from_numpy(np.stack(weights))


def mixture_types(types: tuple[str, str, Any]) -> tuple[tuple[str, int, int], ...]:
    return ((types[0], 640, 2560), (types[0], 640, 2560), (types[1], 2560, 640))


def expected() -> Iterator[tuple[str, np.ndarray]]:
    """Every case by the reference."""
    from engine.reference import experts, linear, matrix

    for i, case in enumerate(LINEAR):
        raw = stored(i, case.kind, (min(BASE, case.outputs),), case.columns)
        m = matrix.matrix(raw, quant_type(case.kind), case.columns, float_activations=False)
        yield case.name, linear.linear(activations(max(case.rows), case.columns), m).numpy()
    for types in MIXTURES:
        stacks = []
        for seed, (kind, n, k) in enumerate(mixture_types(types)):
            raw = repeated(stored(900 + seed, kind, (EXPERTS, BASE), k), n)
            stacks.append(matrix.matrix(raw, quant_type(kind), k, float_activations=False))
        rows = max(types[2])
        out = experts.mixture(activations(rows, 2560), *choices(rows), *stacks)
        yield f"mixture {types[0]} {types[1]}", out.numpy()
    router = stored(77, "F32", (512,), 2560)
    m = matrix.matrix(router, quant_type("F32"), 2560, float_activations=False)
    best, weights = experts.route(activations(5, 2560), m, USED)
    yield "route", np.concatenate((best.numpy().view(np.float32), weights.numpy()), 1)


def repeated(raw: np.ndarray, outputs: int) -> np.ndarray:
    """[E, BASE, bytes] -> [E, outputs, bytes]."""
    times = -(-outputs // raw.shape[1])
    return np.ascontiguousarray(np.concatenate([raw] * times, 1)[:, :outputs])


def device_matrix(i: int, case: Case) -> Any:
    """The matrix of a case on the device, its base repeated."""
    from engine.kernels import matrix
    from engine.kernels.form import FLOAT_TILE, TILE

    raw = stored(i, case.kind, (min(BASE, case.outputs),), case.columns)
    kind = quant_type(case.kind)
    m = matrix.matrix(raw, kind, case.columns, float_activations=False, device="cuda")
    if case.outputs <= BASE:
        return m
    tile = FLOAT_TILE if case.kind in ("F32", "BF16") else TILE
    tiles = m.record.view(BASE // tile, -1)
    where = torch.arange(-(-case.outputs // tile), device="cuda") % len(tiles)
    shape = (1, len(where), *m.record.shape[2:]) if tile == FLOAT_TILE else (1, -1)
    record = tiles[where].view(shape)
    return replace(m, rows=case.outputs, record=record, addresses=matrix._addresses(record))


def differing(got: torch.Tensor, want: np.ndarray, columns: int) -> int:
    """How many outputs have other bits; columns of `want` repeat."""
    a = got.cpu().numpy().view(np.int32)
    b = want.view(np.int32)[:, np.arange(columns) % want.shape[1]]
    return int((a != b).sum()) if a.shape == b.shape else -1


def check(work: tuple[int, str]) -> tuple[str, bool]:
    """One case on the device: a line of the table, and whether it is right."""
    index, path = work
    want = np.load(path)
    begin = time.perf_counter()
    if index < len(LINEAR):
        name, outcomes = LINEAR[index].name, check_linear(index, want)
    elif index < len(LINEAR) + len(MIXTURES):
        types = MIXTURES[index - len(LINEAR)]
        name, outcomes = f"mixture {types[0]} {types[1]}", check_mixture(types, want)
    else:
        name, outcomes = "route", check_route(want)
    bad = {rows: count for rows, count in outcomes.items() if count}
    text = f"differ (rows: outputs) {bad}" if bad else "same bits"
    took = time.perf_counter() - begin
    return f"{name:24s} rows {sorted(outcomes)}: {text}  ({took:.0f} s)", not bad


def check_linear(index: int, want: Any) -> dict[int, int]:
    from engine.kernels.linear import linear

    case = LINEAR[index]
    m = device_matrix(index, case)
    x = activations(max(case.rows), case.columns).cuda()
    return {r: differing(linear(x[:r], m), want[case.name][:r], case.outputs) for r in case.rows}


def device_stacks(types: Any, count: int = EXPERTS) -> list[Any]:
    from engine.kernels import matrix

    stacks = []
    for seed, (kind, n, k) in enumerate(mixture_types(types)):
        raw = repeated(stored(900 + seed, kind, (EXPERTS, BASE), k), n)
        m = matrix.matrix(raw, quant_type(kind), k, float_activations=False, device="cuda")
        record = m.record[torch.arange(count, device="cuda") % EXPERTS]
        stacks.append(replace(m, record=record, addresses=matrix._addresses(record)))
    return stacks


def check_mixture(types: Any, want: Any) -> dict[int, int]:
    from engine.kernels.experts import mixture

    stacks = device_stacks(types)
    result = {}
    for r in types[2]:
        best, weights = (t.cuda() for t in choices(r))
        out = mixture(activations(r, 2560).cuda(), best, weights, *stacks)
        result[r] = differing(out, want[f"mixture {types[0]} {types[1]}"][:r], 2560)
    return result


def check_route(want: Any) -> dict[int, int]:
    from engine.kernels import matrix
    from engine.kernels.experts import route

    raw = stored(77, "F32", (512,), 2560)
    m = matrix.matrix(raw, quant_type("F32"), 2560, float_activations=False, device="cuda")
    result = {}
    for r in (1, 5):
        best, weights = route(activations(r, 2560).cuda(), m, USED)
        both = torch.cat((best.view(torch.float32), weights), 1)
        result[r] = differing(both, want["route"][:r], 2 * USED)
    return result


def time_linear(index: int) -> Iterator[str]:
    """Times of a case: the operator, and its product without the quantisation."""
    from engine.kernels import linear as kernels
    from engine.kernels.form import Form
    from engine.kernels.quantise import quantised

    case = LINEAR[index]
    m = device_matrix(index, case)
    size = m.record.numel() * m.record.element_size()
    count = min(32, max(4, -(-LEFT_IN_CACHE // size)))
    copies = [m, *(replace(m, record=m.record.clone()) for _ in range(count - 1))]
    floor = size / COPY_TB_S / 1e6
    for r in case.timed:
        x = activations(min(r, 16), case.columns).cuda().repeat(-(-r // 16), 1)[:r].contiguous()
        whole = microseconds([lambda c=c, x=x: kernels.linear(x, c) for c in copies])
        line = f"{case.name:24s} rows {r:4d}: {whole:8.1f} us"
        if isinstance(m.form, Form):
            q = quantised(x, woven=r > kernels.FEW)

            def product(c: Any, q: Any = q, few: bool = r <= kernels.FEW) -> None:
                if few:
                    kernels.integer_few(q, c, None, 0)
                else:
                    kernels.integer_many(q, c)

            alone = microseconds([lambda c=c: product(c) for c in copies])
            line += f", product {alone:8.1f} us"
            whole = alone
        yield f"{line}, floor {floor:6.1f} us, {100 * floor / whole:3.0f}%"


def time_mixture(types: Any) -> Iterator[str]:
    from engine.kernels.experts import mixture

    stacks = device_stacks(types, 384)
    size = sum(m.record[0].numel() for m in stacks)
    for r in (1, 2, 8, 64, 512):
        x = activations(min(r, 16), 2560).cuda().repeat(-(-r // 16), 1)[:r].contiguous()
        weights = choices(r)[1].cuda()
        picks = [
            torch.stack([torch.randperm(384)[:USED] for _ in range(r)]).int().cuda()
            for _ in range(8)
        ]
        us = microseconds([lambda p=p, x=x, w=weights: mixture(x, p, w, *stacks) for p in picks])
        distinct = sum(len(p.unique()) for p in picks) / len(picks)
        floor = distinct * size / COPY_TB_S / 1e6
        yield (
            f"mixture {types[0]} {types[1]:8s} rows {r:4d}: {us:8.1f} us, "
            f"floor {floor:6.1f} us ({distinct:.0f} experts), {100 * floor / us:3.0f}%"
        )


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="compute and store the expected values")
    parser.add_argument("--expected", type=Path, help="compare with these values, and time")
    parser.add_argument("--no-times", action="store_true", help="only compare")
    arguments = parser.parse_args()
    if arguments.write:
        np.savez_compressed(arguments.write, **dict(expected()))
        return
    if not arguments.expected:
        parser.error("--write or --expected is needed")
    total = len(LINEAR) + len(MIXTURES) + 1
    works = [(i, str(arguments.expected)) for i in range(total)]
    with multiprocessing.get_context("spawn").Pool(min(WORKERS, total)) as pool:
        right = True
        for line, ok in pool.imap_unordered(check, works):
            print(line, flush=True)
            right &= ok
    print("ALL THE SAME BITS" if right else "SOMETHING DIFFERS", flush=True)
    if not arguments.no_times:
        for index in range(len(LINEAR)):
            for line in time_linear(index):
                print(line, flush=True)
        for types in MIXTURES:
            for line in time_mixture(types):
                print(line, flush=True)
    raise SystemExit(not right)


if __name__ == "__main__":
    main()
